"""Uploads in blocks."""

from urllib.parse import quote

from tableau_sandbox_tests.contract.answer import attribute
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
    upload = workspace.ask("POST", "fileUploads").succeeds(201).element("fileUpload")
    attribute(upload, "uploadSessionId")
    assert attribute(upload, "fileSize") == "0"


@fact(_APPEND, TSC)
def test_appended_block(workspace: Workspace):
    """A block is answered 200 and the size of the file in megabytes."""
    session = workspace.upload()
    upload = workspace.append_block(session, b"x").succeeds(200).element("fileUpload")
    assert attribute(upload, "uploadSessionId") == session
    assert attribute(upload, "fileSize") == "1"


@fact(_APPEND, SAMPLES)
def test_encoded_session(workspace: Workspace):
    """The identifier of an upload may be percent-encoded in a path."""
    workspace.append_block(quote(workspace.upload(), safe=""), b"x").succeeds(200)


@fact(_APPEND, REFERENCE)
def test_block_for_an_unknown_upload(workspace: Workspace):
    """A block for an upload that does not exist is refused with 404015."""
    workspace.append_block(_NO_SESSION, b"x").is_refused("404015")


@fact(_APPEND, REFERENCE)
def test_block_with_a_request(workspace: Workspace):
    """A block with a request that is not empty is refused with 400019."""
    parts = ("request_payload", "", "<tsRequest/>"), ("tableau_file", "file", b"x")
    workspace.send_parts("PUT", f"fileUploads/{workspace.upload()}", *parts).is_refused("400019")


@fact(_APPEND, REFERENCE)
def test_block_without_a_file(workspace: Workspace):
    """A block without a file is refused with 400020."""
    path = f"fileUploads/{workspace.upload()}"
    workspace.send_parts("PUT", path, ("request_payload", "", "")).is_refused("400020")


@fact(_PUBLISH, TSC)
def test_publish_an_upload(workspace: Workspace):
    """A file that was uploaded in blocks is published with all its rows."""
    file, name = rows_file(*ROWS), workspace.new_name()
    session = workspace.upload(file[:1000], file[1000:])
    request = ("request_payload", "", workspace.request(name))
    path = f"datasources?uploadSessionId={session}&datasourceType=hyper"
    answer = workspace.send_parts("POST", path, request).succeeds(201)
    assert attribute(answer.element("datasource"), "name") == name


@fact(_PUBLISH, REFERENCE)
def test_publish_an_upload_without_a_type(workspace: Workspace):
    """The type of an uploaded file must be named; otherwise 400010."""
    session = workspace.upload(b"x")
    request = ("request_payload", "", workspace.request(workspace.new_name()))
    path = f"datasources?uploadSessionId={session}"
    workspace.send_parts("POST", path, request).is_refused("400010")


@fact(_PUBLISH, REFERENCE)
def test_publish_an_upload_and_a_file(workspace: Workspace):
    """An upload and a file in one request are refused with 400010."""
    query = f"uploadSessionId={workspace.upload(b'x')}&datasourceType=hyper"
    workspace.publish(workspace.new_name(), query=query).is_refused("400010")


@fact(_PUBLISH, REFERENCE)
def test_publish_an_unknown_upload(workspace: Workspace):
    """An upload that does not exist is refused with 404015."""
    request = ("request_payload", "", workspace.request(workspace.new_name()))
    path = f"datasources?uploadSessionId={_NO_SESSION}&datasourceType=hyper"
    workspace.send_parts("POST", path, request).is_refused("404015")


@fact(_PUBLISH, LIVE_TESTS)
def test_append_by_an_upload(workspace: Workspace):
    """Rows of an uploaded file are appended to a data source."""
    target = workspace.published()
    session = workspace.upload(rows_file((3, "three")))
    request = ("request_payload", "", workspace.request(target.name))
    path = f"datasources?uploadSessionId={session}&datasourceType=hyper&append=true"
    workspace.send_parts("POST", path, request).succeeds(201)
    assert workspace.rows(target) == [*ROWS, (3, "three")]


@fact("PATCH sites/{site}/datasources/{datasource}/data", UPDATE_GUIDE)
def test_upload_serves_one_update(workspace: Workspace):
    """An upload that an update has used cannot be used again."""
    action = {"action": "insert", "target-table": "Extract", "source-table": "Extract"}
    session, target = workspace.upload(rows_file()), workspace.published()
    path = f"{target.path}/data?uploadSessionId={session}"
    workspace.finished(workspace.send_batch(path, [action]))
    workspace.send_batch(path, [action]).is_refused("404015")


@fact(_PUBLISH, NOBODY)
def test_publish_an_empty_upload(workspace: Workspace):
    """An upload without a block is refused with 400000."""
    request = ("request_payload", "", workspace.request(workspace.new_name()))
    path = f"datasources?uploadSessionId={workspace.upload()}&datasourceType=hyper"
    workspace.send_parts("POST", path, request).is_refused("400000")


@fact(_APPEND, REFERENCE)
def test_blocks_by_number(workspace: Workspace):
    """Numbered blocks make a file in the order of their numbers, whichever comes first."""
    workspace.session.needs_version("3.27")
    file, session, name = rows_file(*ROWS), workspace.upload(), workspace.new_name()
    for number, block in ((2, file[1000:]), (1, file[:1000])):
        parts = ("request_payload", "", ""), ("tableau_file", "file", block)
        path = f"fileUploads/{session}?sequenceID={number}"
        workspace.send_parts("PUT", path, *parts).succeeds(200)
    request = ("request_payload", "", workspace.request(name))
    path = f"datasources?uploadSessionId={session}&datasourceType=hyper"
    answer = workspace.send_parts("POST", path, request).succeeds(201)
    assert attribute(answer.element("datasource"), "name") == name


@fact(_PUBLISH, UPDATE_GUIDE)
def test_upload_serves_one_publish(workspace: Workspace):
    """An upload that was published cannot be used again."""
    session = workspace.upload(rows_file(*ROWS))
    path = f"datasources?uploadSessionId={session}&datasourceType=hyper"
    for code in ("", "404015"):
        answer = workspace.send_parts(
            "POST", path, ("request_payload", "", workspace.request(workspace.new_name()))
        )
        if code:
            answer.is_refused(code)
        else:
            answer.succeeds(201)
