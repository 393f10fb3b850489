"""Publishing a file: what is accepted, in which modes and forms, and what a data source is then."""

import zipfile
from io import BytesIO
from uuid import UUID
from xml.sax.saxutils import quoteattr

import pyarrow as pa
from pyarrow import parquet

from tableau_sandbox_tests.contract.answer import Answer
from tableau_sandbox_tests.contract.files import hyper_file, related_file, rows_file
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
_THREE = (3, "three")


@fact(_PUBLISH, TSC)
def test_published_record(workspace: Workspace):
    """A publish is answered 201 and the data source, in its project, of the user."""
    name = workspace.new_name()
    answer = workspace.publish(name, query="datasourceType=hyper&overwrite=false").succeeds(201)
    assert answer["datasource@name"] == name
    assert answer["datasource/project@id"] == workspace.project
    assert answer["datasource/owner@id"] == workspace.session.user
    assert all(answer[f"datasource@{each}"] for each in ("id", "contentUrl", "updatedAt"))


@fact(_PUBLISH, TABCMD)
def test_published_address(workspace: Workspace):
    """The answer to a publish has the address of the data source for people."""
    answer = workspace.publish(workspace.new_name()).succeeds(201)
    assert answer["datasource@webpageUrl"].startswith("http")


@fact(_PUBLISH, TSC)
def test_content_url_of_a_name(workspace: Workspace):
    """The content URL is the name without spaces."""
    name = workspace.new_name(" with spaces")
    answer = workspace.publish(name).succeeds(201)
    assert answer["datasource@contentUrl"] == name.replace(" ", "")


@fact(_PUBLISH, REFERENCE)
def test_content_url_of_a_namesake(workspace: Workspace):
    """A data source of the same name in another project has a content URL of its own."""
    target, project = workspace.published(), workspace.new_project()
    answer = workspace.publish(target.name, project=project).succeeds(201)
    first = workspace.record(target)
    assert answer["datasource@contentUrl"] != first["datasource@contentUrl"]


@fact(_RECORD, TSC, type_of_hyper_data=("has the type hyper", "type", "hyper"))
@fact(
    _RECORD,
    NOBODY,
    hyper_data_are_no_extract=("counts as live, not as an extract", "hasExtracts", "false"),
)
def test_record_of_hyper_data(workspace: Workspace, *, what: str, name: str, value: str):
    """A published .hyper file {what}."""
    assert workspace.record(workspace.shared)[f"datasource@{name}"] == value


@fact(_PUBLISH, TSC)
def test_publish_as_a_job(workspace: Workspace):
    """With asJob, a publish is answered 202 and a job PublishDatasource, which then succeeds."""
    answer = workspace.publish(workspace.new_name(), query="asJob=true").succeeds(202)
    assert (answer["job@type"], answer["job@mode"]) == ("PublishDatasource", "Asynchronous")
    assert workspace.finished(answer)["job@finishCode"] == "0"


@fact(
    _PUBLISH, SAMPLES, type_from_the_file_name="Without datasourceType, the file's name decides: "
)
@fact(
    _PUBLISH,
    TSC,
    create_new_is_no_parameter="Clients name the mode to create, which servers ignore: "
    "createnew=true",
)
@fact(
    _PUBLISH,
    REFERENCE,
    overwrite_creates="Overwriting creates what does not exist: overwrite=true",
)
def test_accepted_mode(workspace: Workspace, *, claim: str, query: str):
    """{claim}."""
    workspace.publish(workspace.new_name(), query=query).succeeds(201)


@fact(_PUBLISH, LIVE_MESSAGES)
def test_overwrite_keeps_the_luid(workspace: Workspace):
    """Overwriting keeps the LUID and the content URL, and replaces the rows."""
    target = workspace.published()
    before = workspace.record(target)
    query = "overwrite=true"
    after = workspace.publish(target.name, rows_file(_THREE), query=query).succeeds(201)
    assert after["datasource@id"] == target.luid
    assert after["datasource@contentUrl"] == before["datasource@contentUrl"]
    assert workspace.rows(target) == [_THREE]


@fact(
    _PUBLISH,
    REFERENCE,
    append_adds_rows=("Appending adds the rows of the file", "append", [*ROWS, _THREE]),
)
@fact(_PUBLISH, TABCMD, replace_keeps_the_luid=("Replacing replaces the rows", "replace", [_THREE]))
def test_mode(workspace: Workspace, *, what: str, mode: str, rows: list[tuple]):
    """{what} of a data source, which keeps its LUID."""
    target = workspace.published()
    answer = workspace.publish(target.name, rows_file(_THREE), query=f"{mode}=true").succeeds(201)
    assert answer["datasource@id"] == target.luid
    assert workspace.rows(target) == rows


@fact(_PUBLISH, NOBODY)
def test_overwrite_keeps_tags(workspace: Workspace):
    """Overwriting keeps the tags."""
    target = workspace.published()
    workspace.send(f"PUT {target.path}/tags <tags><tag label='kept'/></tags>").succeeds()
    answer = workspace.publish(target.name, query="overwrite=true").succeeds(201)
    assert answer.all("datasource/tags/tag@label") == ["kept"]


@fact(
    _PUBLISH,
    PUBLISH_GUIDE,
    two_unrelated_tables=(
        "A .hyper file with two tables and nothing between them",
        {"file": lambda: hyper_file(_ONE, _TWO)},
        "400011",
    ),
    file_without_tables=("A .hyper file without a table", {"file": hyper_file}, "400011"),
)
@fact(
    _PUBLISH,
    LIVE_MESSAGES,
    file_that_is_no_hyper_file=("A file that cannot be read", {"file": lambda: b"x"}, "400011"),
)
@fact(
    _PUBLISH,
    REFERENCE,
    file_of_another_type=("A type that is not one of data sources", {"suffix": "xlsx"}, "400010"),
    overwrite_perhaps=(
        "A mode that is neither true nor false",
        {"query": "overwrite=perhaps"},
        "400008",
    ),
    overwrite_and_append=(
        "Overwriting and appending at once",
        {"query": "overwrite=true&append=true"},
        "400055",
    ),
    append_to_nothing=(
        "Appending to a name that does not exist",
        {"query": "append=true"},
        "404004",
    ),
    publish_into_an_unknown_project=(
        "A project that does not exist",
        {"project": str(UUID(int=0))},
        "404005",
    ),
)
@fact(
    _PUBLISH,
    NOBODY,
    replace_of_nothing=(
        "Replacing a name that does not exist",
        {"query": "replace=true"},
        "404004",
    ),
)
def test_refused_publish(workspace: Workspace, *, what: str, options: dict, codes: str):
    """{what} is refused with {codes}."""
    made = {name: value() if callable(value) else value for name, value in options.items()}
    workspace.publish(workspace.new_name(), **made).is_refused(codes)


@fact(_PUBLISH, LIVE_MESSAGES)
def test_name_is_taken(workspace: Workspace):
    """Without a mode, a name that exists in the project is refused with 403007."""
    workspace.publish(workspace.shared.name).is_refused("403007")


@fact(_PUBLISH, NOBODY)
def test_name_is_taken_in_capitals(workspace: Workspace):
    """Names of data sources differ in more than the case of letters."""
    workspace.publish(workspace.shared.name.upper()).is_refused("403007")


@fact(_PUBLISH, NOBODY)
def test_append_of_other_columns(workspace: Workspace):
    """Appending rows with other columns is refused with 400011."""
    file = rows_file(columns="id INTEGER, other TEXT")
    workspace.publish(workspace.shared.name, file, query="append=true").is_refused("400011")


@fact(_PUBLISH, PUBLISH_GUIDE)
def test_append_to_several_tables(workspace: Workspace):
    """Nothing is appended to a data source with several tables: 400011."""
    target = workspace.published(related_file())
    workspace.publish(target.name, related_file(), query="append=true").is_refused("400011")


@fact(_PUBLISH, NOBODY)
def test_longest_name(workspace: Workspace):
    """A name may have 255 characters, and not 256: 400000."""
    name = workspace.new_name()
    workspace.publish(name.ljust(255, "x")).succeeds(201)
    workspace.publish(name.ljust(256, "x")).is_refused("400000")


@fact(_PUBLISH, PUBLISH_GUIDE)
def test_names_of_tables_are_kept(workspace: Workspace):
    """Schemas and tables of a file keep their names."""
    file = hyper_file('CREATE SCHEMA "Sales"', 'CREATE TABLE "Sales"."Orders" (id INTEGER)')
    assert workspace.rows(workspace.published(file), table='"Sales"."Orders"') == []


@fact(
    _PUBLISH,
    PUBLISH_GUIDE,
    two_related_tables=("Tables that assumed foreign keys make one tree are accepted", []),
    related_tables_without_integrity=(
        "Nobody checks whether assumed foreign keys lead to rows that exist",
        [(1,)],
    ),
)
def test_related_tables(workspace: Workspace, *, claim: str, rows: list[tuple]):
    """{claim}."""
    inserts = ['INSERT INTO "Extract"."Two" VALUES (1)'] if rows else []
    target = workspace.published(related_file(*inserts))
    assert workspace.rows(target, table='"Extract"."Two"') == rows


@fact(_PUBLISH, UPDATE_GUIDE)
def test_published_parquet(workspace: Workspace):
    """A Parquet file becomes a .hyper file with its rows, behind one connection."""
    buffer = BytesIO()
    parquet.write_table(pa.table({"id": [1, 2]}), buffer)
    target = workspace.published(buffer.getvalue(), suffix="parquet")
    answer = workspace.send(f"GET {target.path}/connections").succeeds()
    assert len(answer.elements("connections/connection")) == 1
    content = workspace.send(f"GET {target.path}/content").succeeds().content
    with zipfile.ZipFile(BytesIO(content)) as package:
        assert len([name for name in package.namelist() if name.endswith(".hyper")]) == 1


@fact(_PUBLISH, TSC)
def test_published_package(workspace: Workspace):
    """A package that was downloaded can be published again, with its rows."""
    content = workspace.send("GET {shared}/content").succeeds().content
    assert workspace.rows(workspace.published(content, suffix="tdsx")) == [*ROWS]


@fact(_PUBLISH, REFERENCE)
def test_publish_without_a_file(workspace: Workspace):
    """A request without a file is refused with 400000."""
    request = workspace.request(workspace.new_name())
    workspace.send_parts("POST datasources?datasourceType=hyper", request).is_refused("400000")


@fact(_PUBLISH, REFERENCE)
def test_publish_of_two_files(workspace: Workspace):
    """Two files in one request are refused with 400010."""
    file = ("tableau_datasource", "file.hyper", rows_file())
    parts = workspace.request(workspace.new_name()), file, file
    workspace.send_parts("POST datasources", *parts).is_refused("400010")


@fact(_PUBLISH, REFERENCE)
def test_malformed_publish(workspace: Workspace):
    """A request that breaks off is refused with 400000."""
    parts = ("request_payload", "", "<tsRequest>"), ("tableau_datasource", "f.hyper", rows_file())
    workspace.send_parts("POST datasources", *parts).is_refused("400000")


@fact(_PUBLISH, REFERENCE)
def test_publish_as_a_form(workspace: Workspace):
    """A body must be multipart/mixed, not multipart/form-data."""
    file = ("tableau_datasource", "f.hyper", rows_file())
    parts = workspace.request(workspace.new_name()), file
    answer = workspace.send_parts("POST datasources", *parts, kind="form-data")
    assert 400 <= answer.status < 500, answer


@fact(_PUBLISH, TSC)
def test_description_of_a_publish(workspace: Workspace):
    """A publish describes the data source, and may bring credentials along."""
    request = (
        f"<tsRequest><datasource name={quoteattr(workspace.new_name())} description='Seen'>"
        '<connectionCredentials name="somebody" password="secret" embed="true"/>'
        f"<project id={quoteattr(workspace.project)}/></datasource></tsRequest>"
    )
    parts = ("request_payload", "", request), ("tableau_datasource", "f.hyper", rows_file())
    answer = workspace.send_parts("POST datasources", *parts).succeeds(201)
    record = workspace.send(f"GET datasources/{answer['datasource@id']}").succeeds()
    assert record["datasource@description"] == "Seen"


def _publish_by(workspace: Workspace, name: str, *heads: str) -> Answer:
    """Publish the first rows with these heads of the request and of the file."""
    body, contents = b"", (str(workspace.request(name)[2]).encode(), rows_file(*ROWS))
    for head, content in zip(heads, contents, strict=True):
        body += f"--b\r\nContent-Disposition: {head}\r\n\r\n".encode() + content + b"\r\n"
    headers = {"Content-Type": "multipart/mixed; boundary=b"}
    return workspace.ask("POST", "datasources", body + b"--b--\r\n", headers=headers)


@fact(
    _PUBLISH,
    LIVE_TESTS,
    parts_without_quotes=(
        "The heads of parts need neither quotes nor content types",
        "name=request_payload",
        "name=tableau_datasource; filename=f.hyper",
    ),
)
@fact(
    _PUBLISH,
    JSON_CLIENTS,
    parts_of_a_form=(
        "The parts may be called form-data, and the request may have an empty file name",
        'form-data; name="request_payload"; filename=""',
        'form-data; name="tableau_datasource"; filename="f.hyper"',
    ),
)
@fact(
    _PUBLISH,
    TSC,
    file_name_in_other_letters=(
        "The name of a file may have letters of all alphabets, and names nothing",
        'name="request_payload"',
        'name="tableau_datasource"; filename="\N{GREEK SMALL LETTER OMEGA} %22x%22.hyper"',
    ),
)
def test_heads_of_parts(workspace: Workspace, *, claim: str, head: str, file: str):
    """{claim}."""
    name = workspace.new_name()
    answer = _publish_by(workspace, name, head, file).succeeds(201)
    assert answer["datasource@name"] == name


@fact(_PUBLISH, TSC)
def test_name_in_other_letters(workspace: Workspace):
    """A name may have letters of all alphabets, written as references to characters."""
    name = workspace.new_name(" \N{LATIN SMALL LETTER SHARP S}\N{GREEK SMALL LETTER OMEGA} & <x>")
    part, _, request = workspace.request(name)
    parts = (
        (part, "", str(request).encode("ascii", "xmlcharrefreplace")),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    )
    answer = workspace.send_parts("POST datasources", *parts).succeeds(201)
    assert answer["datasource@name"] == name
