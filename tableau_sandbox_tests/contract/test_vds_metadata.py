"""VizQL Data Service: sessions, refusals, and what it says of a data source."""

import re

import pytest

from tableau_sandbox_tests.contract.files import hyper_file, table_file
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.sources import MCP, NOBODY, TWB, VDS_HELP, VDS_OPENAPI, fact
from tableau_sandbox_tests.contract.vds import about, call, query, refused, rows
from tableau_sandbox_tests.contract.workspace import Published, Workspace

_METADATA = "POST vizql-data-service/read-metadata"
_MODEL = "POST vizql-data-service/get-datasource-model"
_NO_LUID = {"datasource": {"datasourceLuid": "00000000-0000-0000-0000-000000000000"}}


@fact("GET vizql-data-service/simple-request", VDS_OPENAPI)
def test_service_says_ahoy(session: Session):
    """VizQL Data Service answers simple-request with ahoy, without a session."""
    answer = call(session, "simple-request", "", method="GET", token="")
    assert answer.succeeds().json() == "ahoy"


@fact(_METADATA, VDS_HELP)
def test_service_needs_a_session(session: Session):
    """VizQL Data Service refuses a request without a session with 401001 or 401002."""
    refused(call(session, "read-metadata", _NO_LUID, token=""), "401001", "401002")


@fact(_METADATA, MCP)
def test_service_of_an_unknown_datasource(session: Session):
    """VizQL Data Service refuses a data source that does not exist with 404937."""
    refused(call(session, "read-metadata", _NO_LUID), "404937")


@fact(_METADATA, MCP)
def test_unknown_endpoint_of_the_service(session: Session):
    """VizQL Data Service refuses an endpoint that it does not have with 404950."""
    refused(call(session, "no-such-endpoint", _NO_LUID), "404950")


@fact(_METADATA, VDS_HELP)
def test_service_of_no_json(session: Session):
    """VizQL Data Service refuses a body that is no JSON with 400000."""
    refused(call(session, "read-metadata", "{"), "400000")


@fact(_METADATA, VDS_OPENAPI)
def test_service_of_another_form(session: Session):
    """VizQL Data Service refuses a request with an unknown key with 400802."""
    refused(call(session, "read-metadata", {**_NO_LUID, "colour": "red"}), "400802")


@fact(_METADATA, VDS_HELP)
def test_time_of_a_refusal(session: Session):
    """VizQL Data Service refuses with a message and the time in UTC."""
    error = refused(call(session, "read-metadata", "{"), "400000")
    assert error.get("message"), error.keys()
    stamp = str(error.get("datetime"))
    assert re.fullmatch(r"[\d-]{10}T[\d:]{8}(\.\d+)?Z", stamp), stamp


@fact(_METADATA, NOBODY)
def test_service_by_another_verb(session: Session):
    """VizQL Data Service refuses another verb than POST with the status 405."""
    assert call(session, "read-metadata", _NO_LUID, method="PUT").status == 405


@fact(_METADATA, VDS_OPENAPI)
def test_metadata_of_fields(workspace: Workspace):
    """VizQL Data Service tells the name, the caption and the type of each field."""
    fields = about(workspace.session, "read-metadata", workspace.shared.luid)["data"]
    found = {(each["fieldName"], each["fieldCaption"], each["dataType"]) for each in fields}
    assert found == {("id", "id", "INTEGER"), ("name", "name", "STRING")}


@fact(_MODEL, VDS_OPENAPI)
def test_logical_tables(workspace: Workspace):
    """VizQL Data Service names the logical table that each field belongs to."""
    model = about(workspace.session, "get-datasource-model", workspace.shared.luid)
    tables = {each["logicalTableId"] for each in model["logicalTables"]}
    fields = about(workspace.session, "read-metadata", workspace.shared.luid)["data"]
    assert {each["logicalTableId"] for each in fields} == tables


@fact(_MODEL, NOBODY)
def test_caption_of_the_only_table(workspace: Workspace):
    """The logical table of a published .hyper file with one table has the caption of the table."""
    model = about(workspace.session, "get-datasource-model", workspace.shared.luid)
    assert [each["caption"] for each in model["logicalTables"]] == ["Extract"]


@fact("POST vizql-data-service/user-has-query-permissions", VDS_OPENAPI)
def test_owner_may_query(workspace: Workspace):
    """VizQL Data Service tells the owner of a data source that they may query it."""
    answer = about(workspace.session, "user-has-query-permissions", workspace.shared.luid)
    assert answer["hasQueryPermission"] is True


@fact("POST vizql-data-service/list-supported-functions", VDS_OPENAPI)
def test_functions_of_formulas(workspace: Workspace):
    """VizQL Data Service lists COUNT among the functions of formulas."""
    functions = about(workspace.session, "list-supported-functions", workspace.shared.luid)
    if not functions:
        pytest.skip("the server lists no functions")
    assert "COUNT" in {each["name"] for each in functions}


_QUERY = "POST vizql-data-service/query-datasource"
# A JSON number of this size is another one for programs that read it as a double.
_LARGE = 2**53 + 1


def _two_tables(workspace: Workspace) -> Published:
    file = hyper_file(
        'CREATE TABLE "Extract"."One" (id INTEGER NOT NULL, ASSUMED PRIMARY KEY (id))',
        'CREATE TABLE "Extract"."Two" (id INTEGER)',
        'ALTER TABLE "Extract"."Two" ADD ASSUMED FOREIGN KEY (id) REFERENCES "Extract"."One" (id)',
        'INSERT INTO "Extract"."One" VALUES (1), (2), (3)',
        'INSERT INTO "Extract"."Two" VALUES (1), (NULL)',
    )
    return workspace.published(file)


@fact(_MODEL, VDS_OPENAPI)
def test_relationships_of_tables(workspace: Workspace):
    """Assumed foreign keys become relationships of logical tables."""
    model = about(workspace.session, "get-datasource-model", _two_tables(workspace).luid)
    captions = {each["logicalTableId"]: each["caption"] for each in model["logicalTables"]}
    assert set(captions.values()) == {"One", "Two"}
    (found,) = model["logicalTableRelationships"]
    ends = (found[f"{end}LogicalTable"]["logicalTableId"] for end in ("from", "to"))
    assert {captions[each] for each in ends} == {"One", "Two"}


@fact("POST vizql-data-service/read-metadata", TWB)
def test_columns_of_one_name(workspace: Workspace):
    """Of two columns with one name, that of the second table has its table in its caption."""
    target = _two_tables(workspace)
    model = about(workspace.session, "get-datasource-model", target.luid)
    tables = {each["logicalTableId"]: each["caption"] for each in model["logicalTables"]}
    fields = about(workspace.session, "read-metadata", target.luid)["data"]
    assert len(fields) == 2
    told = {each["fieldCaption"]: tables[each["logicalTableId"]] for each in fields}
    (other,) = [caption for caption in told if caption != "id"]
    assert other == f"id ({told[other]})"


@fact(_QUERY, VDS_HELP)
def test_count_of_one_of_two_tables(workspace: Workspace):
    """In a data source of two tables, COUNT of each counts its own rows."""
    target = _two_tables(workspace)
    for table, count in (("One", 3), ("Two", 2)):
        field = {"fieldCaption": "n", "calculation": f"COUNT([{table}])"}
        answer = query(workspace.session, target.luid, field)
        if answer.status == 400:
            pytest.skip("the server's VizQL Data Service counts no tables")
        assert rows(answer) == [{"n": count}]


@fact(_QUERY, NOBODY)
def test_large_numbers(workspace: Workspace):
    """Whole numbers beyond 2^53 come with all their digits."""
    target = workspace.published(table_file("id BIGINT", f"({_LARGE})"))
    answer = query(workspace.session, target.luid, {"fieldCaption": "id", "function": "MAX"})
    assert rows(answer) == [{"MAX(id)": _LARGE}]


@fact(_QUERY, NOBODY)
def test_brackets_in_names(workspace: Workspace):
    """In a formula, a bracket at the end of a name is written twice."""
    target = workspace.published(table_file('"a]b" INTEGER', "(1)", "(2)"))
    field = {"fieldCaption": "n", "calculation": "SUM([a]]b])"}
    assert rows(query(workspace.session, target.luid, field)) == [{"n": 3}]


@fact(_QUERY, VDS_HELP)
def test_fresh_answers(workspace: Workspace):
    """A query may ask to bypass caches."""
    field = {"fieldCaption": "name", "function": "COUNT", "fieldAlias": "n"}
    options = {"bypassMetadataCache": True}
    answer = query(workspace.session, workspace.shared.luid, field, options=options)
    if answer.status == 400:
        pytest.skip("the server's VizQL Data Service does not know bypassMetadataCache")
    assert rows(answer) == [{"n": 2}]
