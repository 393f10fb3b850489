"""Publishing and uploading files: modes, forms, refusals and results."""

import zipfile
from collections.abc import Callable
from io import BytesIO
from urllib.parse import quote
from uuid import uuid4
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import pyarrow as pa
from pyarrow import parquet

from tableau_sandbox_tests.contract.extract import extract
from tableau_sandbox_tests.contract.files import hyper_file, related_file, rows_file
from tableau_sandbox_tests.contract.sources import Source, fact
from tableau_sandbox_tests.contract.workspace import ROWS, Published, Workspace

_PUBLISH = "POST sites/{site}/datasources"
_ONE, _TWO = (f'CREATE TABLE "Extract"."{name}" (id INTEGER)' for name in ("One", "Two"))
_THREE = (3, "three")
_CONTENT = "GET sites/{site}/datasources/{datasource}/content"
_BLOCK = "PUT sites/{site}/fileUploads/{upload}"
_NAMED = "<tsRequest><datasource {}/></tsRequest>"
# The first version that has publish mode Replace.
_REPLACE = "3.25"
_NO_SESSION = "1:00000000000000000000000000000000-0:0"


@fact(_PUBLISH, Source.TSC)
def test_published_record(workspace: Workspace):
    """A publish is answered with 201 and the data source, which belongs to the user."""
    name = workspace.new_name()
    answer = workspace.publish(name, query="datasourceType=hyper&overwrite=false").succeeds(201)
    assert answer["datasource@name"] == name
    assert answer["datasource/project@id"] == workspace.project
    assert answer["datasource/owner@id"] == workspace.session.user
    assert all(answer[f"datasource@{each}"] for each in ("id", "contentUrl", "updatedAt"))
    assert answer["datasource@webpageUrl"].startswith("http")


@fact(_PUBLISH, Source.TSC)
def test_content_url_of_a_name(workspace: Workspace):
    """The content URL is the name without spaces."""
    name = workspace.new_name(" with spaces")
    answer = workspace.publish(name).succeeds(201)
    assert answer["datasource@contentUrl"] == name.replace(" ", "")


@fact(_PUBLISH, Source.REFERENCE)
def test_content_url_of_a_namesake(workspace: Workspace):
    """A data source of the same name in another project has a content URL of its own."""
    target, project = workspace.published(), workspace.new_project()
    answer = workspace.publish(target.name, project=project).succeeds(201)
    first = workspace.record(target)
    assert answer["datasource@contentUrl"] != first["datasource@contentUrl"]


@fact(_PUBLISH, Source.TSC)
def test_publish_as_a_job(workspace: Workspace):
    """With asJob, a publish is answered with 202 and a job PublishDatasource, which succeeds."""
    answer = workspace.publish(query="asJob=true").succeeds(202)
    assert (answer["job@type"], answer["job@mode"]) == ("PublishDatasource", "Asynchronous")
    assert workspace.finished(answer)["job@finishCode"] == "0"


@fact(_PUBLISH, Source.SAMPLES, type_from_the_file_name=("Without datasourceType", ""))
@fact(_PUBLISH, Source.TSC, create_new_is_no_parameter=("With an unknown mode", "createnew=true"))
@fact(_PUBLISH, Source.REFERENCE, overwrite_creates=("To overwrite", "overwrite=true"))
def test_accepted_query(workspace: Workspace, *, how: str, query: str):
    """{how}, a data source that does not exist is created."""
    workspace.publish(query=query).succeeds(201)


@fact(_PUBLISH, Source.LIVE_MESSAGES)
def test_overwrite_keeps_the_luid(workspace: Workspace):
    """Overwriting keeps LUID and content URL, and replaces the rows."""
    target = workspace.published()
    before = workspace.record(target)
    query = "overwrite=true"
    after = workspace.publish(target.name, rows_file(_THREE), query=query).succeeds(201)
    assert after["datasource@id"] == target.luid
    assert after["datasource@contentUrl"] == before["datasource@contentUrl"]
    assert workspace.rows(target) == [_THREE]


@fact(_PUBLISH, Source.REFERENCE, append_adds_rows=("append", "Appending adds", [*ROWS, _THREE]))
@fact(
    _PUBLISH, Source.REFERENCE, replace_keeps_the_luid=("replace", "Replacing replaces", [_THREE])
)
def test_mode(workspace: Workspace, *, mode: str, what: str, rows: list[tuple]):
    """{what} the rows, and keeps the LUID."""
    if mode == "replace":
        workspace.session.needs_version(_REPLACE)
    target = workspace.published()
    answer = workspace.publish(target.name, rows_file(_THREE), query=f"{mode}=true").succeeds(201)
    assert answer["datasource@id"] == target.luid
    assert workspace.rows(target) == rows


@fact(_PUBLISH, Source.TABCMD)
def test_replace_keeps_the_model(workspace: Workspace):
    """Replacing keeps the .tds, even if the file has more columns."""
    workspace.session.needs_version(_REPLACE)
    target = workspace.published()
    before = _model(workspace, target)
    file = rows_file(columns="id INTEGER, name TEXT, other TEXT")
    workspace.publish(target.name, file, query="replace=true").succeeds(201)
    assert _model(workspace, target) == before


@fact(_PUBLISH, Source.UNSTATED)
def test_overwrite_keeps_tags(workspace: Workspace):
    """Overwriting keeps the tags."""
    target = workspace.published()
    workspace.send(f"PUT {target.path}/tags <tags><tag label='kept'/></tags>").succeeds()
    answer = workspace.publish(target.name, query="overwrite=true").succeeds(201)
    assert answer.all("datasource/tags/tag@label") == ["kept"]


@fact(
    _PUBLISH,
    Source.REFERENCE,
    overwrite_perhaps=("A mode that is neither true nor false", "overwrite=perhaps", "400008"),
    overwrite_and_append=(
        "Overwriting and appending at once",
        "overwrite=true&append=true",
        "400055",
    ),
    append_to_nothing=("Appending to an unknown name", "append=true", "404004"),
    file_of_another_type=(
        "A file type that data sources do not have",
        "datasourceType=xlsx",
        "400010",
    ),
)
@fact(
    _PUBLISH,
    Source.UNSTATED,
    replace_of_nothing=("Replacing an unknown name", "replace=true", "404004"),
)
def test_refused_query(workspace: Workspace, *, what: str, query: str, codes: str):
    """{what} is refused with {codes}."""
    if "replace" in query:
        workspace.session.needs_version(_REPLACE)
    workspace.publish(query=query).is_refused(codes)


@fact(_PUBLISH, Source.REFERENCE)
def test_publish_into_an_unknown_project(workspace: Workspace):
    """A project that does not exist is refused with 404005."""
    workspace.publish(project=str(uuid4())).is_refused("404005")


@fact(
    _PUBLISH,
    Source.PUBLISH_GUIDE,
    two_unrelated_tables=("A .hyper file with two unrelated tables", (_ONE, _TWO)),
    file_without_tables=("A .hyper file without a table", ()),
)
@fact(
    _PUBLISH, Source.LIVE_MESSAGES, file_that_is_no_hyper_file=("A file that cannot be read", None)
)
def test_refused_file(workspace: Workspace, *, what: str, statements: tuple[str, ...] | None):
    """{what} is refused with 400011."""
    file = b"this is no .hyper file" if statements is None else hyper_file(*statements)
    workspace.publish(file=file).is_refused("400011")


@fact(_PUBLISH, Source.LIVE_MESSAGES)
def test_two_unrelated_tables_as_a_job(workspace: Workspace):
    """A publish of two unrelated tables as a job fails with finishCode 1."""
    answer = workspace.publish(file=hyper_file(_ONE, _TWO), query="asJob=true")
    assert workspace.finished(answer)["job@finishCode"] == "1"


@fact(_PUBLISH, Source.MCP)
def test_taken_name_as_a_job(workspace: Workspace):
    """A publish under a taken name as a job is accepted; the job fails without a reason."""
    name = workspace.shared.name
    job = workspace.finished(workspace.publish(name, rows_file(_THREE), query="asJob=true"))
    assert job["job@finishCode"] == "1"
    assert job.elements("job/statusNotes/statusNote") == []
    assert workspace.rows(workspace.shared) == [*ROWS]


@fact(
    _PUBLISH,
    Source.REFERENCE,
    publish_without_a_file=("A request without a file", "", 0, "400000"),
    publish_of_two_files=("A request with two files", "", 2, "400010"),
    malformed_publish=("An incomplete request", "<tsRequest>", 1, "400000"),
    publish_without_a_name=("A request without a name", _NAMED.format(""), 1, "400000"),
    publish_under_a_blank_name=("A name of spaces", _NAMED.format("name='  '"), 1, "400000"),
    publish_of_a_senseless_flag=(
        "A flag that is neither true nor false",
        _NAMED.format("name='x' useRemoteQueryAgent='perhaps'"),
        1,
        "400000",
    ),
)
def test_refused_parts(workspace: Workspace, *, what: str, text: str, files: int, codes: str):
    """{what} is refused with {codes}."""
    request = ("request_payload", "", text) if text else workspace.request(workspace.new_name())
    parts = request, *[("tableau_datasource", "f.hyper", rows_file())] * files
    workspace.send_parts("POST datasources?datasourceType=hyper", *parts).is_refused(codes)


@fact(_PUBLISH, Source.LIVE_MESSAGES, name_is_taken=("a taken name", str.lower))
@fact(_PUBLISH, Source.UNSTATED, name_is_taken_in_capitals=("a taken name in capitals", str.upper))
def test_taken_name(workspace: Workspace, *, what: str, form: Callable[[str], str]):
    """Without a mode, {what} is refused with 403007."""
    workspace.publish(form(workspace.shared.name)).is_refused("403007")


@fact(_PUBLISH, Source.UNSTATED)
def test_append_of_other_columns(workspace: Workspace):
    """Appending other columns is refused with 400011."""
    file = rows_file(columns="id INTEGER, other TEXT")
    workspace.publish(workspace.shared.name, file, query="append=true").is_refused("400011")


@fact(_PUBLISH, Source.PUBLISH_GUIDE)
def test_append_to_several_tables(workspace: Workspace):
    """Appending to a data source with several tables is refused with 400011."""
    target = workspace.published(related_file())
    workspace.publish(target.name, related_file(), query="append=true").is_refused("400011")


@fact(_PUBLISH, Source.UNSTATED)
def test_longest_name(workspace: Workspace):
    """A name may have 255 characters; a name of 256 characters is refused with 400000."""
    name = workspace.new_name()
    workspace.publish(name.ljust(255, "x")).succeeds(201)
    workspace.publish(name.ljust(256, "x")).is_refused("400000")


@fact(_PUBLISH, Source.PUBLISH_GUIDE)
def test_names_of_tables_are_kept(workspace: Workspace):
    """Schemas and tables of a file keep their names."""
    file = hyper_file('CREATE SCHEMA "Sales"', 'CREATE TABLE "Sales"."Orders" (id INTEGER)')
    assert workspace.rows(workspace.published(file), table='"Sales"."Orders"') == []


@fact(
    _PUBLISH,
    Source.PUBLISH_GUIDE,
    two_related_tables=("Tables are accepted if assumed foreign keys relate them as one tree", []),
    related_tables_without_integrity=(
        "No server checks whether assumed foreign keys lead to rows that exist",
        [(1,)],
    ),
)
def test_related_tables(workspace: Workspace, *, claim: str, rows: list[tuple]):
    """{claim}."""
    inserts = ['INSERT INTO "Extract"."Two" VALUES (1)'] if rows else []
    target = workspace.published(related_file(*inserts))
    assert workspace.rows(target, table='"Extract"."Two"') == rows


@fact(_PUBLISH, Source.UPDATE_GUIDE)
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


@fact(_PUBLISH, Source.TSC)
def test_published_package(workspace: Workspace):
    """A downloaded package can be published again, with its rows."""
    content = workspace.send("GET {shared}/content").succeeds().content
    assert workspace.rows(workspace.published(content, suffix="tdsx")) == [*ROWS]


def _model(workspace: Workspace, target: Published) -> str:
    """Return the .tds of a data source."""
    answer = workspace.send(f"GET {target.path}/content?includeExtract=False").succeeds()
    with zipfile.ZipFile(BytesIO(answer.content)) as package:
        (name,) = (each for each in package.namelist() if each.endswith(".tds"))
        return package.read(name).decode()


@fact(_CONTENT, Source.FILES)
def test_model_in_the_form_of_a_server(workspace: Workspace):
    """A downloaded .tds has no names with `_.fcp.`, and states its place on the server."""
    target = extract(workspace)
    root = ElementTree.fromstring(_model(workspace, target))
    assert not [each.tag for each in root.iter() if "_.fcp." in each.tag]
    assert {"aliases", "folders-common", "extract"} <= {each.tag for each in root} - {"folder"}
    url = workspace.record(target)["datasource@contentUrl"]
    assert root.find("repository-location").get("id") == url
    assert root.get("{http://www.w3.org/XML/1998/namespace}base")


@fact(_CONTENT, Source.FILES)
def test_members_of_a_package(workspace: Workspace):
    """The .tds is named by the content URL; the .hyper file is in Data/Extracts."""
    target = extract(workspace)
    content = workspace.send(f"GET {target.path}/content").succeeds().content
    url = workspace.record(target)["datasource@contentUrl"]
    with zipfile.ZipFile(BytesIO(content)) as package:
        assert {f"{url}.tds", "Data/Extracts/rows.hyper"} <= {*package.namelist()}


@fact(_PUBLISH, Source.REFERENCE)
def test_publish_as_a_form(workspace: Workspace):
    """A body must be multipart/mixed, not multipart/form-data."""
    file = ("tableau_datasource", "f.hyper", rows_file())
    parts = workspace.request(workspace.new_name()), file
    answer = workspace.send_parts("POST datasources", *parts, kind="form-data")
    assert 400 <= answer.status < 500, answer


@fact(_PUBLISH, Source.TSC)
def test_description_of_a_publish(workspace: Workspace):
    """A publish can set a description and embed credentials."""
    request = (
        f"<tsRequest><datasource name={quoteattr(workspace.new_name())} description='Seen'>"
        '<connectionCredentials name="somebody" password="secret" embed="true"/>'
        f"<project id={quoteattr(workspace.project)}/></datasource></tsRequest>"
    )
    parts = ("request_payload", "", request), ("tableau_datasource", "f.hyper", rows_file())
    answer = workspace.send_parts("POST datasources", *parts).succeeds(201)
    record = workspace.send(f"GET datasources/{answer['datasource@id']}").succeeds()
    assert record["datasource@description"] == "Seen"


@fact(
    _PUBLISH,
    Source.LIVE_TESTS,
    parts_without_quotes=(
        "The heads of parts need neither quotes nor content types",
        "name=request_payload",
        "name=tableau_datasource; filename=f.hyper",
    ),
)
@fact(
    _PUBLISH,
    Source.JSON_CLIENTS,
    parts_of_a_form=(
        "The parts may be called form-data, and the request may have an empty file name",
        'form-data; name="request_payload"; filename=""',
        'form-data; name="tableau_datasource"; filename="f.hyper"',
    ),
)
@fact(
    _PUBLISH,
    Source.TSC,
    file_name_in_other_letters=(
        "The name of a file may have letters of all alphabets, and has no effect",
        'name="request_payload"',
        'name="tableau_datasource"; filename="\N{GREEK SMALL LETTER OMEGA} %22x%22.hyper"',
    ),
)
def test_heads_of_parts(workspace: Workspace, *, claim: str, head: str, file: str):
    """{claim}."""
    name, body = workspace.new_name(), b""
    for part, content in ((head, str(workspace.request(name)[2]).encode()), (file, rows_file())):
        body += f"--b\r\nContent-Disposition: {part}\r\n\r\n".encode() + content + b"\r\n"
    headers = {"Content-Type": "multipart/mixed; boundary=b"}
    answer = workspace.ask("POST", "datasources", body + b"--b--\r\n", headers=headers)
    assert answer.succeeds(201)["datasource@name"] == name


@fact(_PUBLISH, Source.TSC)
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


@fact(_BLOCK, Source.TSC)
def test_appended_block(workspace: Workspace):
    """A block is answered with 200 and the size of the file in megabytes."""
    upload = workspace.upload()
    answer = workspace.append_block(upload, b"x").succeeds()
    found = answer["fileUpload@uploadSessionId"], answer["fileUpload@fileSize"]
    assert found == (upload, "1")


@fact(_BLOCK, Source.SAMPLES)
def test_encoded_session(workspace: Workspace):
    """The identifier of an upload may be percent-encoded in a path."""
    workspace.append_block(quote(workspace.upload(), safe=""), b"x").succeeds()


@fact(_BLOCK, Source.REFERENCE)
def test_block_for_an_unknown_upload(workspace: Workspace):
    """A block for an upload that does not exist is refused with 404015."""
    workspace.append_block(_NO_SESSION, b"x").is_refused("404015")


@fact(
    _BLOCK,
    Source.REFERENCE,
    block_with_a_request=(
        "with a request that is not empty",
        [("request_payload", "", "<tsRequest/>"), ("tableau_file", "file", b"x")],
        "400019",
    ),
    block_without_a_file=("without a file", [("request_payload", "", "")], "400020"),
)
def test_refused_block(workspace: Workspace, *, what: str, parts: list, codes: str):
    """A block {what} is refused with {codes}."""
    path = f"PUT fileUploads/{workspace.upload()}"
    workspace.send_parts(path, *parts).is_refused(codes)


@fact(_BLOCK, Source.REFERENCE)
def test_blocks_by_number(workspace: Workspace):
    """Numbered blocks make a file in the order of their numbers, not of their arrival."""
    workspace.session.needs_version("3.27")
    file, upload = rows_file(*ROWS), workspace.upload()
    for number, block in ((2, file[1000:]), (1, file[:1000])):
        workspace.append_block(f"{upload}?sequenceID={number}", block).succeeds()
    workspace.publish(upload=upload).succeeds(201)


@fact(_PUBLISH, Source.TSC)
def test_publish_an_upload(workspace: Workspace):
    """A file that was uploaded in blocks is published with all its rows."""
    file, name = rows_file(*ROWS), workspace.new_name()
    upload = workspace.upload(file[:1000], file[1000:])
    assert workspace.publish(name, upload=upload).succeeds(201)["datasource@name"] == name


@fact(_PUBLISH, Source.LIVE_TESTS)
def test_append_by_an_upload(workspace: Workspace):
    """Rows of an uploaded file are appended to a data source."""
    target, upload = workspace.published(), workspace.upload(rows_file((3, "three")))
    query = "datasourceType=hyper&append=true"
    workspace.publish(target.name, upload=upload, query=query).succeeds(201)
    assert workspace.rows(target) == [*ROWS, (3, "three")]


@fact(
    _PUBLISH,
    Source.REFERENCE,
    publish_an_upload_without_a_type=(
        "An upload without its type",
        [b"x"],
        "append=false",
        "400010",
    ),
    publish_an_unknown_upload=("An upload that does not exist", None, "", "404015"),
)
@fact(
    _PUBLISH,
    Source.UNSTATED,
    publish_an_empty_upload=("An upload without blocks", [], "", "400000"),
)
def test_refused_upload(
    workspace: Workspace, *, what: str, blocks: list[bytes] | None, query: str, codes: str
):
    """{what} is refused with {codes}."""
    upload = _NO_SESSION if blocks is None else workspace.upload(*blocks)
    workspace.publish(upload=upload, query=query).is_refused(codes)


@fact(_PUBLISH, Source.REFERENCE)
def test_publish_an_upload_and_a_file(workspace: Workspace):
    """An upload and a file in one request are refused with 400010."""
    query = f"uploadSessionId={workspace.upload(b'x')}&datasourceType=hyper"
    workspace.publish(query=query).is_refused("400010")


@fact(_PUBLISH, Source.UPDATE_GUIDE)
def test_upload_serves_one_publish(workspace: Workspace):
    """An upload that was published cannot be used again."""
    upload = workspace.upload(rows_file(*ROWS))
    workspace.publish(upload=upload).succeeds(201)
    workspace.publish(upload=upload).is_refused("404015")


@fact("PATCH sites/{site}/datasources/{datasource}/data", Source.UPDATE_GUIDE)
def test_upload_serves_one_update(workspace: Workspace):
    """An upload that an update has used cannot be used again."""
    action = {"action": "insert", "target-table": "Extract", "source-table": "Extract"}
    upload, target = workspace.upload(rows_file()), workspace.published()
    workspace.finished(workspace.update(target, [action], upload=upload))
    workspace.update(target, [action], upload=upload).is_refused("404015")
