"""Uploads in blocks."""

from urllib.parse import quote

from tableau_sandbox_tests.contract.files import rows_file
from tableau_sandbox_tests.contract.sources import (
    LIVE_TESTS,
    NOBODY,
    REFERENCE,
    SAMPLES,
    TSC,
    UPDATE_GUIDE,
    fact,
)
from tableau_sandbox_tests.contract.workspace import ROWS, Workspace

_PUBLISH = "POST sites/{site}/datasources"
_APPEND = "PUT sites/{site}/fileUploads/{upload}"
_NO_SESSION = "1:00000000000000000000000000000000-0:0"


@fact("POST sites/{site}/fileUploads", TSC)
def test_new_upload(workspace: Workspace):
    """An upload begins with 201 and the size 0."""
    answer = workspace.send("POST fileUploads").succeeds(201)
    assert answer["fileUpload@uploadSessionId"]
    assert answer["fileUpload@fileSize"] == "0"


@fact(_APPEND, TSC)
def test_appended_block(workspace: Workspace):
    """A block is answered 200 and the size of the file in megabytes."""
    upload = workspace.upload()
    answer = workspace.append_block(upload, b"x").succeeds()
    found = answer["fileUpload@uploadSessionId"], answer["fileUpload@fileSize"]
    assert found == (upload, "1")


@fact(_APPEND, SAMPLES)
def test_encoded_session(workspace: Workspace):
    """The identifier of an upload may be percent-encoded in a path."""
    workspace.append_block(quote(workspace.upload(), safe=""), b"x").succeeds()


@fact(_APPEND, REFERENCE)
def test_block_for_an_unknown_upload(workspace: Workspace):
    """A block for an upload that does not exist is refused with 404015."""
    workspace.append_block(_NO_SESSION, b"x").is_refused("404015")


@fact(
    _APPEND,
    REFERENCE,
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


@fact(_APPEND, REFERENCE)
def test_blocks_by_number(workspace: Workspace):
    """Numbered blocks make a file in the order of their numbers, whichever comes first."""
    workspace.session.needs_version("3.27")
    file, upload = rows_file(*ROWS), workspace.upload()
    for number, block in ((2, file[1000:]), (1, file[:1000])):
        workspace.append_block(f"{upload}?sequenceID={number}", block).succeeds()
    workspace.publish_upload(upload).succeeds(201)


@fact(_PUBLISH, TSC)
def test_publish_an_upload(workspace: Workspace):
    """A file that was uploaded in blocks is published with all its rows."""
    file, name = rows_file(*ROWS), workspace.new_name()
    upload = workspace.upload(file[:1000], file[1000:])
    assert workspace.publish_upload(upload, name).succeeds(201)["datasource@name"] == name


@fact(_PUBLISH, LIVE_TESTS)
def test_append_by_an_upload(workspace: Workspace):
    """Rows of an uploaded file are appended to a data source."""
    target, upload = workspace.published(), workspace.upload(rows_file((3, "three")))
    query = "datasourceType=hyper&append=true"
    workspace.publish_upload(upload, target.name, query=query).succeeds(201)
    assert workspace.rows(target) == [*ROWS, (3, "three")]


@fact(_PUBLISH, REFERENCE)
def test_publish_an_upload_without_a_type(workspace: Workspace):
    """The type of an uploaded file must be named; otherwise 400010."""
    workspace.publish_upload(workspace.upload(b"x"), query="").is_refused("400010")


@fact(_PUBLISH, REFERENCE)
def test_publish_an_upload_and_a_file(workspace: Workspace):
    """An upload and a file in one request are refused with 400010."""
    query = f"uploadSessionId={workspace.upload(b'x')}&datasourceType=hyper"
    workspace.publish(workspace.new_name(), query=query).is_refused("400010")


@fact(_PUBLISH, REFERENCE)
def test_publish_an_unknown_upload(workspace: Workspace):
    """An upload that does not exist is refused with 404015."""
    workspace.publish_upload(_NO_SESSION).is_refused("404015")


@fact(_PUBLISH, NOBODY)
def test_publish_an_empty_upload(workspace: Workspace):
    """An upload without a block is refused with 400000."""
    workspace.publish_upload(workspace.upload()).is_refused("400000")


@fact(_PUBLISH, UPDATE_GUIDE)
def test_upload_serves_one_publish(workspace: Workspace):
    """An upload that was published cannot be used again."""
    upload = workspace.upload(rows_file(*ROWS))
    workspace.publish_upload(upload).succeeds(201)
    workspace.publish_upload(upload).is_refused("404015")


@fact("PATCH sites/{site}/datasources/{datasource}/data", UPDATE_GUIDE)
def test_upload_serves_one_update(workspace: Workspace):
    """An upload that an update has used cannot be used again."""
    action = {"action": "insert", "target-table": "Extract", "source-table": "Extract"}
    upload, target = workspace.upload(rows_file()), workspace.published()
    path = f"{target.path}/data?uploadSessionId={upload}"
    workspace.finished(workspace.send_batch(path, [action]))
    workspace.send_batch(path, [action]).is_refused("404015")
