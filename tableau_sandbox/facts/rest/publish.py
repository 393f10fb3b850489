"""Publishing a file: what is accepted, and what a data source is afterwards."""

import json
from uuid import uuid4

from tableau_sandbox.facts.answer import attribute, expect, expect_that
from tableau_sandbox.facts.fact import writes
from tableau_sandbox.facts.files import hyper_file, packaged_hyper, rows_file, rows_of
from tableau_sandbox.facts.playground import ROWS, Playground
from tableau_sandbox.facts.sources import (
    JSON_CLIENTS,
    LIVE_MESSAGES,
    NOBODY,
    PUBLISH_GUIDE,
    REFERENCE,
    SAMPLES,
    TABCMD,
    TSC,
)

_PUBLISH = "POST sites/{site}/datasources"
_RECORD = "GET sites/{site}/datasources/{datasource}"
_ONE, _TWO = (f'CREATE TABLE "Extract"."{name}" (id INTEGER)' for name in ("One", "Two"))


@writes(_PUBLISH, TSC)
def published_record(play: Playground) -> None:
    """A publish is answered 201 and the data source, in its project, of the user."""
    name = play.new_name()
    answer = play.publish(name, query="datasourceType=hyper&overwrite=false").succeeds(201)
    datasource = answer.element("datasource")
    expect(name, attribute(datasource, "name"))
    expect(play.project, attribute(answer.element("datasource/project"), "id"))
    expect(play.scene.user, attribute(answer.element("datasource/owner"), "id"))
    for attribute_name in ("id", "contentUrl", "createdAt", "updatedAt"):
        attribute(datasource, attribute_name)


@writes(_PUBLISH, TABCMD)
def published_address(play: Playground) -> None:
    """The answer to a publish has the address of the data source for people."""
    answer = play.publish(play.new_name()).succeeds(201)
    address = attribute(answer.element("datasource"), "webpageUrl")
    expect_that(address.startswith("http"), "an address", address)


@writes(_PUBLISH, SAMPLES)
def type_from_the_file_name(play: Playground) -> None:
    """Without datasourceType, the name of the file decides."""
    play.publish(play.new_name(), query="overwrite=true").succeeds(201)


@writes(_PUBLISH, TSC)
def content_url_of_a_name(play: Playground) -> None:
    """The content URL is the name without spaces."""
    name = play.new_name(" with spaces")
    answer = play.publish(name).succeeds(201)
    expect(name.replace(" ", ""), attribute(answer.element("datasource"), "contentUrl"))


@writes(_RECORD, TSC)
def type_of_hyper_data(play: Playground) -> None:
    """A published .hyper file has the type hyper."""
    record = play.ask("GET", play.shared.path).succeeds(200).element("datasource")
    expect("hyper", attribute(record, "type"))


@writes(_RECORD, NOBODY)
def hyper_data_are_no_extract(play: Playground) -> None:
    """A published .hyper file counts as live, not as an extract."""
    record = play.ask("GET", play.shared.path).succeeds(200).element("datasource")
    expect("false", attribute(record, "hasExtracts"))


@writes(_PUBLISH, JSON_CLIENTS)
def publish_by_json(play: Playground) -> None:
    """The request of a publish may be JSON."""
    name = play.new_name()
    request = {"datasource": {"name": name, "project": {"id": play.project}}}
    answer = play.send_parts(
        "POST",
        "datasources?datasourceType=hyper",
        ("request_payload", "", json.dumps(request)),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    ).succeeds(201)
    expect(name, attribute(answer.element("datasource"), "name"))


@writes(_PUBLISH, PUBLISH_GUIDE)
def names_of_tables_are_kept(play: Playground) -> None:
    """Schemas and tables of a file keep their names."""
    file = hyper_file('CREATE SCHEMA "Sales"', 'CREATE TABLE "Sales"."Orders" (id INTEGER)')
    target = play.published(file)
    content = play.ask("GET", f"{target.path}/content").succeeds(200).content
    expect([], rows_of(packaged_hyper(content)[1], table='"Sales"."Orders"'))


@writes(_PUBLISH, PUBLISH_GUIDE)
def two_unrelated_tables(play: Playground) -> None:
    """A .hyper file with two tables and nothing between them is refused with 400011."""
    play.publish(play.new_name(), hyper_file(_ONE, _TWO)).is_refused("400011")


@writes(_PUBLISH, PUBLISH_GUIDE)
def two_related_tables(play: Playground) -> None:
    """Tables that assumed foreign keys make one tree are accepted."""
    file = hyper_file(
        'CREATE TABLE "Extract"."One" (id INTEGER NOT NULL, ASSUMED PRIMARY KEY (id))',
        _TWO,
        'ALTER TABLE "Extract"."Two" ADD ASSUMED FOREIGN KEY (id) REFERENCES "Extract"."One" (id)',
    )
    play.publish(play.new_name(), file).succeeds(201)


@writes(_PUBLISH, LIVE_MESSAGES)
def file_that_is_no_hyper_file(play: Playground) -> None:
    """A file that cannot be read is refused with 400011."""
    play.publish(play.new_name(), b"this is no .hyper file").is_refused("400011")


@writes(_PUBLISH, REFERENCE)
def file_of_another_type(play: Playground) -> None:
    """A type that is not one of data sources is refused with 400010."""
    play.publish(play.new_name(), suffix="xlsx").is_refused("400010")


@writes(_PUBLISH, REFERENCE)
def publish_without_a_file(play: Playground) -> None:
    """A request without a file is refused with 400000."""
    request = ("request_payload", "", play.request(play.new_name()))
    play.send_parts("POST", "datasources?datasourceType=hyper", request).is_refused("400000")


@writes(_PUBLISH, REFERENCE)
def publish_of_two_files(play: Playground) -> None:
    """Two files in one request are refused with 400010."""
    file = ("tableau_datasource", "file.hyper", rows_file())
    request = ("request_payload", "", play.request(play.new_name()))
    play.send_parts("POST", "datasources", request, file, file).is_refused("400010")


@writes(_PUBLISH, REFERENCE)
def malformed_publish(play: Playground) -> None:
    """A request that breaks off is refused with 400000."""
    parts = ("request_payload", "", "<tsRequest>"), ("tableau_datasource", "f.hyper", rows_file())
    play.send_parts("POST", "datasources", *parts).is_refused("400000")


@writes(_PUBLISH, REFERENCE)
def publish_as_a_form(play: Playground) -> None:
    """A body must be multipart/mixed, not multipart/form-data."""
    answer = play.send_parts(
        "POST",
        "datasources",
        ("request_payload", "", play.request(play.new_name())),
        ("tableau_datasource", "file.hyper", rows_file()),
        kind="form-data",
    )
    expect_that(400 <= answer.status < 500, "a refusal", answer)


@writes(_PUBLISH, REFERENCE)
def publish_into_an_unknown_project(play: Playground) -> None:
    """A project that does not exist is refused with 404005."""
    request = play.request(play.new_name(), project=str(uuid4()))
    parts = ("request_payload", "", request), ("tableau_datasource", "f.hyper", rows_file())
    play.send_parts("POST", "datasources", *parts).is_refused("404005")


@writes(_PUBLISH, TSC)
def publish_as_a_job(play: Playground) -> None:
    """With asJob, a publish is answered 202 and a job PublishDatasource, which then succeeds."""
    answer = play.publish(play.new_name(), query="asJob=true").succeeds(202)
    job = answer.element("job")
    expect(("PublishDatasource", "Asynchronous"), (job.get("type"), job.get("mode")))
    expect("0", attribute(play.finished(answer), "finishCode"))


@writes("GET sites/{site}/datasources", TSC)
def published_name_is_found(play: Playground) -> None:
    """A filter by name finds what was published, at once."""
    target = play.published()
    found = play.ask("GET", f"datasources?filter=name:eq:{target.name}").succeeds(200)
    luids = [attribute(item, "id") for item in found.elements("datasources/datasource")]
    expect([target.luid], luids)
