"""Publishing a file: what is accepted, in which modes and forms, and what a data source is then."""

import json
import zipfile
from io import BytesIO
from uuid import uuid4
from xml.sax.saxutils import quoteattr

import pyarrow as pa
from pyarrow import parquet

from tableau_sandbox_tests.contract.answer import Answer, attribute
from tableau_sandbox_tests.contract.files import hyper_file, packaged_hyper, rows_file, rows_of
from tableau_sandbox_tests.contract.sources import (
    JSON_CLIENTS,
    LIVE_MESSAGES,
    LIVE_TESTS,
    NOBODY,
    PUBLISH_GUIDE,
    REFERENCE,
    SAMPLES,
    TABCMD,
    TSC,
    UPDATE_GUIDE,
    fact,
)
from tableau_sandbox_tests.contract.workspace import ROWS, Workspace

_PUBLISH = "POST sites/{site}/datasources"
_RECORD = "GET sites/{site}/datasources/{datasource}"
_ONE, _TWO = (f'CREATE TABLE "Extract"."{name}" (id INTEGER)' for name in ("One", "Two"))


@fact(_PUBLISH, TSC)
def test_published_record(workspace: Workspace):
    """A publish is answered 201 and the data source, in its project, of the user."""
    name = workspace.new_name()
    answer = workspace.publish(name, query="datasourceType=hyper&overwrite=false").succeeds(201)
    datasource = answer.element("datasource")
    assert attribute(datasource, "name") == name
    assert attribute(answer.element("datasource/project"), "id") == workspace.project
    assert attribute(answer.element("datasource/owner"), "id") == workspace.session.user
    for attribute_name in ("id", "contentUrl", "createdAt", "updatedAt"):
        attribute(datasource, attribute_name)


@fact(_PUBLISH, TABCMD)
def test_published_address(workspace: Workspace):
    """The answer to a publish has the address of the data source for people."""
    answer = workspace.publish(workspace.new_name()).succeeds(201)
    address = attribute(answer.element("datasource"), "webpageUrl")
    assert address.startswith("http"), address


@fact(_PUBLISH, SAMPLES)
def test_type_from_the_file_name(workspace: Workspace):
    """Without datasourceType, the name of the file decides."""
    workspace.publish(workspace.new_name(), query="overwrite=true").succeeds(201)


@fact(_PUBLISH, TSC)
def test_content_url_of_a_name(workspace: Workspace):
    """The content URL is the name without spaces."""
    name = workspace.new_name(" with spaces")
    answer = workspace.publish(name).succeeds(201)
    assert attribute(answer.element("datasource"), "contentUrl") == name.replace(" ", "")


@fact(_RECORD, TSC)
def test_type_of_hyper_data(workspace: Workspace):
    """A published .hyper file has the type hyper."""
    record = workspace.ask("GET", workspace.shared.path).succeeds(200).element("datasource")
    assert attribute(record, "type") == "hyper"


@fact(_RECORD, NOBODY)
def test_hyper_data_are_no_extract(workspace: Workspace):
    """A published .hyper file counts as live, not as an extract."""
    record = workspace.ask("GET", workspace.shared.path).succeeds(200).element("datasource")
    assert attribute(record, "hasExtracts") == "false"


@fact(_PUBLISH, JSON_CLIENTS)
def test_publish_by_json(workspace: Workspace):
    """The request of a publish may be JSON."""
    name = workspace.new_name()
    request = {"datasource": {"name": name, "project": {"id": workspace.project}}}
    answer = workspace.send_parts(
        "POST",
        "datasources?datasourceType=hyper",
        ("request_payload", "", json.dumps(request)),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    ).succeeds(201)
    assert attribute(answer.element("datasource"), "name") == name


@fact(_PUBLISH, PUBLISH_GUIDE)
def test_names_of_tables_are_kept(workspace: Workspace):
    """Schemas and tables of a file keep their names."""
    file = hyper_file('CREATE SCHEMA "Sales"', 'CREATE TABLE "Sales"."Orders" (id INTEGER)')
    target = workspace.published(file)
    content = workspace.ask("GET", f"{target.path}/content").succeeds(200).content
    assert rows_of(packaged_hyper(content)[1], table='"Sales"."Orders"') == []


@fact(_PUBLISH, PUBLISH_GUIDE)
def test_two_unrelated_tables(workspace: Workspace):
    """A .hyper file with two tables and nothing between them is refused with 400011."""
    workspace.publish(workspace.new_name(), hyper_file(_ONE, _TWO)).is_refused("400011")


@fact(_PUBLISH, PUBLISH_GUIDE)
def test_two_related_tables(workspace: Workspace):
    """Tables that assumed foreign keys make one tree are accepted."""
    file = hyper_file(
        'CREATE TABLE "Extract"."One" (id INTEGER NOT NULL, ASSUMED PRIMARY KEY (id))',
        _TWO,
        'ALTER TABLE "Extract"."Two" ADD ASSUMED FOREIGN KEY (id) REFERENCES "Extract"."One" (id)',
    )
    workspace.publish(workspace.new_name(), file).succeeds(201)


@fact(_PUBLISH, LIVE_MESSAGES)
def test_file_that_is_no_hyper_file(workspace: Workspace):
    """A file that cannot be read is refused with 400011."""
    workspace.publish(workspace.new_name(), b"this is no .hyper file").is_refused("400011")


@fact(_PUBLISH, REFERENCE)
def test_file_of_another_type(workspace: Workspace):
    """A type that is not one of data sources is refused with 400010."""
    workspace.publish(workspace.new_name(), suffix="xlsx").is_refused("400010")


@fact(_PUBLISH, REFERENCE)
def test_publish_without_a_file(workspace: Workspace):
    """A request without a file is refused with 400000."""
    request = ("request_payload", "", workspace.request(workspace.new_name()))
    workspace.send_parts("POST", "datasources?datasourceType=hyper", request).is_refused("400000")


@fact(_PUBLISH, REFERENCE)
def test_publish_of_two_files(workspace: Workspace):
    """Two files in one request are refused with 400010."""
    file = ("tableau_datasource", "file.hyper", rows_file())
    request = ("request_payload", "", workspace.request(workspace.new_name()))
    workspace.send_parts("POST", "datasources", request, file, file).is_refused("400010")


@fact(_PUBLISH, REFERENCE)
def test_malformed_publish(workspace: Workspace):
    """A request that breaks off is refused with 400000."""
    parts = ("request_payload", "", "<tsRequest>"), ("tableau_datasource", "f.hyper", rows_file())
    workspace.send_parts("POST", "datasources", *parts).is_refused("400000")


@fact(_PUBLISH, REFERENCE)
def test_publish_as_a_form(workspace: Workspace):
    """A body must be multipart/mixed, not multipart/form-data."""
    answer = workspace.send_parts(
        "POST",
        "datasources",
        ("request_payload", "", workspace.request(workspace.new_name())),
        ("tableau_datasource", "file.hyper", rows_file()),
        kind="form-data",
    )
    assert 400 <= answer.status < 500, answer


@fact(_PUBLISH, REFERENCE)
def test_publish_into_an_unknown_project(workspace: Workspace):
    """A project that does not exist is refused with 404005."""
    request = workspace.request(workspace.new_name(), project=str(uuid4()))
    parts = ("request_payload", "", request), ("tableau_datasource", "f.hyper", rows_file())
    workspace.send_parts("POST", "datasources", *parts).is_refused("404005")


@fact(_PUBLISH, TSC)
def test_publish_as_a_job(workspace: Workspace):
    """With asJob, a publish is answered 202 and a job PublishDatasource, which then succeeds."""
    answer = workspace.publish(workspace.new_name(), query="asJob=true").succeeds(202)
    job = answer.element("job")
    assert (job.get("type"), job.get("mode")) == ("PublishDatasource", "Asynchronous")
    assert attribute(workspace.finished(answer), "finishCode") == "0"


@fact("GET sites/{site}/datasources", TSC)
def test_published_name_is_found(workspace: Workspace):
    """A filter by name finds what was published, at once."""
    target = workspace.published()
    found = workspace.ask("GET", f"datasources?filter=name:eq:{target.name}").succeeds(200)
    luids = [attribute(item, "id") for item in found.elements("datasources/datasource")]
    assert luids == [target.luid]


_THREE = (3, "three")


@fact(_PUBLISH, LIVE_MESSAGES)
def test_name_is_taken(workspace: Workspace):
    """Without a mode, a name that exists in the project is refused with 403007."""
    workspace.publish(workspace.shared.name).is_refused("403007")


@fact(_PUBLISH, NOBODY)
def test_name_is_taken_in_capitals(workspace: Workspace):
    """Names of data sources differ in more than the case of letters."""
    workspace.publish(workspace.shared.name.upper()).is_refused("403007")


@fact(_PUBLISH, TSC)
def test_create_new_is_no_parameter(workspace: Workspace):
    """The mode to create is the default: clients name it, and servers ignore it."""
    workspace.publish(workspace.new_name(), query="createnew=true").succeeds(201)


@fact(_PUBLISH, REFERENCE)
def test_overwrite_creates(workspace: Workspace):
    """Overwriting creates what does not exist."""
    workspace.publish(workspace.new_name(), query="overwrite=true").succeeds(201)


@fact(_PUBLISH, LIVE_MESSAGES)
def test_overwrite_keeps_the_luid(workspace: Workspace):
    """Overwriting keeps the LUID and the content URL, and replaces the rows."""
    target = workspace.published()
    before = workspace.ask("GET", target.path).succeeds(200).element("datasource")
    after = workspace.publish(target.name, rows_file(_THREE), query="overwrite=true").succeeds(201)
    for name in ("id", "contentUrl"):
        assert after.element("datasource").get(name) == before.get(name)
    assert workspace.rows(target) == [_THREE]


@fact(_PUBLISH, REFERENCE)
def test_append_adds_rows(workspace: Workspace):
    """Appending adds the rows of the file to those of the data source."""
    target = workspace.published()
    answer = workspace.publish(target.name, rows_file(_THREE), query="append=true").succeeds(201)
    assert attribute(answer.element("datasource"), "id") == target.luid
    assert workspace.rows(target) == [*ROWS, _THREE]


@fact(_PUBLISH, REFERENCE)
def test_append_to_nothing(workspace: Workspace):
    """Appending to a name that does not exist is refused with 404004."""
    workspace.publish(workspace.new_name(), query="append=true").is_refused("404004")


@fact(_PUBLISH, NOBODY)
def test_append_of_other_columns(workspace: Workspace):
    """Appending rows with other columns is refused with 400011."""
    file = rows_file(columns="id INTEGER, other TEXT")
    workspace.publish(workspace.shared.name, file, query="append=true").is_refused("400011")


@fact(_PUBLISH, REFERENCE)
def test_overwrite_and_append(workspace: Workspace):
    """Overwriting and appending at once is refused with 400055."""
    query = "overwrite=true&append=true"
    workspace.publish(workspace.shared.name, query=query).is_refused("400055")


@fact(_PUBLISH, REFERENCE)
def test_overwrite_perhaps(workspace: Workspace):
    """A mode that is neither true nor false is refused with 400008."""
    workspace.publish(workspace.new_name(), query="overwrite=perhaps").is_refused("400008")


@fact(_PUBLISH, TABCMD)
def test_replace_keeps_the_luid(workspace: Workspace):
    """Replacing replaces the rows of a data source, which keeps its LUID."""
    target = workspace.published()
    answer = workspace.publish(target.name, rows_file(_THREE), query="replace=true").succeeds(201)
    assert attribute(answer.element("datasource"), "id") == target.luid
    assert workspace.rows(target) == [_THREE]


@fact(_PUBLISH, NOBODY)
def test_replace_of_nothing(workspace: Workspace):
    """Replacing a name that does not exist is refused with 404004."""
    workspace.publish(workspace.new_name(), query="replace=true").is_refused("404004")


@fact(_PUBLISH, NOBODY)
def test_overwrite_keeps_tags(workspace: Workspace):
    """Overwriting keeps the tags."""
    target = workspace.published()
    tags = '<tsRequest><tags><tag label="kept"/></tags></tsRequest>'
    workspace.ask("PUT", f"{target.path}/tags", tags).succeeds(200)
    answer = workspace.publish(target.name, query="overwrite=true").succeeds(201)
    assert [tag.get("label") for tag in answer.elements("datasource/tags/tag")] == ["kept"]


@fact(_PUBLISH, PUBLISH_GUIDE)
def test_append_to_several_tables(workspace: Workspace):
    """Nothing is appended to a data source with several tables: 400011."""
    file = hyper_file(
        'CREATE TABLE "Extract"."One" (id INTEGER NOT NULL, ASSUMED PRIMARY KEY (id))',
        'CREATE TABLE "Extract"."Two" (id INTEGER)',
        'ALTER TABLE "Extract"."Two" ADD ASSUMED FOREIGN KEY (id) REFERENCES "Extract"."One" (id)',
    )
    target = workspace.published(file)
    workspace.publish(target.name, file, query="append=true").is_refused("400011")


@fact(_PUBLISH, REFERENCE)
def test_content_url_of_a_namesake(workspace: Workspace):
    """A data source of the same name in another project has a content URL of its own."""
    target, project = workspace.published(), workspace.new_project()
    parts = (
        ("request_payload", "", workspace.request(target.name, project=project)),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    )
    second = workspace.send_parts("POST", "datasources", *parts).succeeds(201).element("datasource")
    first = workspace.ask("GET", target.path).succeeds(200).element("datasource")
    assert attribute(first, "contentUrl") != attribute(second, "contentUrl")


def _send(workspace: Workspace, name: str, *heads: str) -> Answer:
    """Publish the first rows with these heads of the request and of the file."""
    body = b""
    for head, content in zip(
        heads, (workspace.request(name).encode(), rows_file(*ROWS)), strict=True
    ):
        body += f"--b\r\nContent-Disposition: {head}\r\n\r\n".encode() + content + b"\r\n"
    headers = {"Content-Type": "multipart/mixed; boundary=b"}
    return workspace.ask("POST", "datasources", body + b"--b--\r\n", headers=headers).succeeds(201)


@fact(_PUBLISH, LIVE_TESTS)
def test_parts_without_quotes(workspace: Workspace):
    """The heads of parts need neither quotes nor content types."""
    _send(
        workspace,
        workspace.new_name(),
        "name=request_payload",
        "name=tableau_datasource; filename=f.hyper",
    )


@fact(_PUBLISH, JSON_CLIENTS)
def test_parts_of_a_form(workspace: Workspace):
    """The parts may be called form-data, and the request may have an empty file name."""
    request = 'form-data; name="request_payload"; filename=""'
    file = 'form-data; name="tableau_datasource"; filename="f.hyper"'
    _send(workspace, workspace.new_name(), request, file)


@fact(_PUBLISH, TSC)
def test_file_name_in_other_letters(workspace: Workspace):
    """The name of a file may have letters of all alphabets, and names nothing."""
    name = workspace.new_name()
    file = 'name="tableau_datasource"; filename="\N{GREEK SMALL LETTER OMEGA} %22x%22.hyper"'
    answer = _send(workspace, name, 'name="request_payload"', file)
    assert attribute(answer.element("datasource"), "name") == name


@fact(_PUBLISH, TSC)
def test_name_in_other_letters(workspace: Workspace):
    """A name may have letters of all alphabets, written as references to characters."""
    name = workspace.new_name(" \N{LATIN SMALL LETTER SHARP S}\N{GREEK SMALL LETTER OMEGA} & <x>")
    parts = (
        ("request_payload", "", workspace.request(name).encode("ascii", "xmlcharrefreplace")),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    )
    answer = workspace.send_parts("POST", "datasources", *parts).succeeds(201)
    assert attribute(answer.element("datasource"), "name") == name


@fact(_PUBLISH, TSC)
def test_description_of_a_publish(workspace: Workspace):
    """A publish describes the data source, and may bring credentials along."""
    request = (
        f"<tsRequest><datasource name={quoteattr(workspace.new_name())} description='Seen'>"
        '<connectionCredentials name="somebody" password="secret" embed="true"/>'
        f"<project id={quoteattr(workspace.project)}/></datasource></tsRequest>"
    )
    parts = ("request_payload", "", request), ("tableau_datasource", "f.hyper", rows_file(*ROWS))
    answer = workspace.send_parts("POST", "datasources", *parts).succeeds(201)
    luid = attribute(answer.element("datasource"), "id")
    record = workspace.ask("GET", f"datasources/{luid}").succeeds(200).element("datasource")
    assert attribute(record, "description") == "Seen"


@fact(_PUBLISH, UPDATE_GUIDE)
def test_published_parquet(workspace: Workspace):
    """A Parquet file becomes a .hyper file with its rows, behind one connection."""
    buffer = BytesIO()
    parquet.write_table(pa.table({"id": [1, 2]}), buffer)
    target = workspace.published(buffer.getvalue(), suffix="parquet")
    answer = workspace.ask("GET", f"{target.path}/connections").succeeds(200)
    assert len(answer.elements("connections/connection")) == 1
    content = workspace.ask("GET", f"{target.path}/content").succeeds(200).content
    with zipfile.ZipFile(BytesIO(content)) as package:
        assert len([name for name in package.namelist() if name.endswith(".hyper")]) == 1


@fact(_PUBLISH, TSC)
def test_published_package(workspace: Workspace):
    """A package that was downloaded can be published again, with its rows."""
    content = workspace.ask("GET", f"{workspace.shared.path}/content").succeeds(200).content
    target = workspace.published(content, suffix="tdsx")
    assert workspace.rows(target) == [*ROWS]


@fact(_PUBLISH, PUBLISH_GUIDE)
def test_related_tables_without_integrity(workspace: Workspace):
    """Nobody checks whether assumed foreign keys lead to rows that exist."""
    file = hyper_file(
        'CREATE TABLE "Extract"."One" (id INTEGER NOT NULL, ASSUMED PRIMARY KEY (id))',
        'CREATE TABLE "Extract"."Two" (id INTEGER)',
        'ALTER TABLE "Extract"."Two" ADD ASSUMED FOREIGN KEY (id) REFERENCES "Extract"."One" (id)',
        'INSERT INTO "Extract"."Two" VALUES (1)',
    )
    target = workspace.published(file)
    content = workspace.ask("GET", f"{target.path}/content").succeeds(200).content
    assert rows_of(packaged_hyper(content)[1], table='"Extract"."Two"') == [(1,)]


@fact(_PUBLISH, PUBLISH_GUIDE)
def test_file_without_tables(workspace: Workspace):
    """A .hyper file without a table is refused with 400011."""
    workspace.publish(workspace.new_name(), hyper_file()).is_refused("400011")


@fact(_PUBLISH, NOBODY)
def test_longest_name(workspace: Workspace):
    """A name may have 255 characters, and not 256: 400000."""
    name = workspace.new_name()
    workspace.publish(name + "x" * (255 - len(name))).succeeds(201)
    workspace.publish(name + "x" * (256 - len(name))).is_refused("400000")
