"""The service itself: sessions, refusals, and what it says of a data source."""

import re

from tableau_sandbox.facts.answer import NotShown, expect, expect_that
from tableau_sandbox.facts.fact import reads, writes
from tableau_sandbox.facts.playground import Playground
from tableau_sandbox.facts.scene import Scene
from tableau_sandbox.facts.sources import MCP, NOBODY, VDS_HELP, VDS_OPENAPI
from tableau_sandbox.facts.vds.asking import about, call, refused

_METADATA = "POST vizql-data-service/read-metadata"
_MODEL = "POST vizql-data-service/get-datasource-model"
_NO_LUID = {"datasource": {"datasourceLuid": "00000000-0000-0000-0000-000000000000"}}


@reads("GET vizql-data-service/simple-request", VDS_OPENAPI)
def service_says_ahoy(scene: Scene) -> None:
    """VizQL Data Service answers simple-request with ahoy, without a session."""
    answer = call(scene, "simple-request", "", method="GET", token="")
    expect("ahoy", answer.succeeds(200).json())


@reads(_METADATA, VDS_HELP)
def service_needs_a_session(scene: Scene) -> None:
    """VizQL Data Service refuses a request without a session with 401001 or 401002."""
    refused(call(scene, "read-metadata", _NO_LUID, token=""), "401001", "401002")


@reads(_METADATA, MCP)
def service_of_an_unknown_datasource(scene: Scene) -> None:
    """VizQL Data Service refuses a data source that does not exist with 404937."""
    refused(call(scene, "read-metadata", _NO_LUID), "404937")


@reads(_METADATA, MCP)
def unknown_endpoint_of_the_service(scene: Scene) -> None:
    """VizQL Data Service refuses an endpoint that it does not have with 404950."""
    refused(call(scene, "no-such-endpoint", _NO_LUID), "404950")


@reads(_METADATA, VDS_HELP)
def service_of_no_json(scene: Scene) -> None:
    """VizQL Data Service refuses a body that is no JSON with 400000."""
    refused(call(scene, "read-metadata", "{"), "400000")


@reads(_METADATA, VDS_OPENAPI)
def service_of_another_form(scene: Scene) -> None:
    """VizQL Data Service refuses a request with an unknown key with 400802."""
    refused(call(scene, "read-metadata", {**_NO_LUID, "colour": "red"}), "400802")


@reads(_METADATA, VDS_HELP)
def time_of_a_refusal(scene: Scene) -> None:
    """VizQL Data Service refuses with a message and the time in UTC."""
    error = refused(call(scene, "read-metadata", "{"), "400000")
    expect_that(error.get("message"), "a message", error.keys())
    stamp = str(error.get("datetime"))
    expect_that(re.fullmatch(r"[\d-]{10}T[\d:]{8}(\.\d+)?Z", stamp), "a time in UTC", stamp)


@reads(_METADATA, NOBODY)
def service_by_another_verb(scene: Scene) -> None:
    """VizQL Data Service refuses another verb than POST with the status 405."""
    expect(405, call(scene, "read-metadata", _NO_LUID, method="PUT").status)


@writes(_METADATA, VDS_OPENAPI)
def metadata_of_fields(play: Playground) -> None:
    """VizQL Data Service tells the name, the caption and the type of each field."""
    fields = about(play.scene, "read-metadata", play.shared.luid)["data"]
    found = {(each["fieldName"], each["fieldCaption"], each["dataType"]) for each in fields}
    expect({("id", "id", "INTEGER"), ("name", "name", "STRING")}, found)


@writes(_MODEL, VDS_OPENAPI)
def logical_tables(play: Playground) -> None:
    """VizQL Data Service names the logical table that each field belongs to."""
    model = about(play.scene, "get-datasource-model", play.shared.luid)
    tables = {each["logicalTableId"] for each in model["logicalTables"]}
    fields = about(play.scene, "read-metadata", play.shared.luid)["data"]
    expect(tables, {each["logicalTableId"] for each in fields})


@writes(_MODEL, NOBODY)
def caption_of_the_only_table(play: Playground) -> None:
    """The logical table of a published .hyper file with one table has the caption of the table."""
    model = about(play.scene, "get-datasource-model", play.shared.luid)
    expect(["Extract"], [each["caption"] for each in model["logicalTables"]])


@writes("POST vizql-data-service/user-has-query-permissions", VDS_OPENAPI)
def owner_may_query(play: Playground) -> None:
    """VizQL Data Service tells the owner of a data source that they may query it."""
    answer = about(play.scene, "user-has-query-permissions", play.shared.luid)
    expect(True, answer["hasQueryPermission"])


@writes("POST vizql-data-service/list-supported-functions", VDS_OPENAPI)
def functions_of_formulas(play: Playground) -> None:
    """VizQL Data Service lists COUNT among the functions of formulas."""
    functions = about(play.scene, "list-supported-functions", play.shared.luid)
    if not functions:
        raise NotShown("the server lists no functions")
    expect_that("COUNT" in {each["name"] for each in functions}, "COUNT", "others only")
