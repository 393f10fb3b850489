"""Uploads in blocks."""

from urllib.parse import quote

from tableau_sandbox.facts.answer import attribute, expect
from tableau_sandbox.facts.fact import writes
from tableau_sandbox.facts.files import rows_file
from tableau_sandbox.facts.playground import ROWS, Playground
from tableau_sandbox.facts.sources import (
    LIVE_TESTS,
    NOBODY,
    REFERENCE,
    SAMPLES,
    TSC,
    UPDATE_GUIDE,
)

_PUBLISH = "POST sites/{site}/datasources"
_APPEND = "PUT sites/{site}/fileUploads/{upload}"
_NO_SESSION = "1:00000000000000000000000000000000-0:0"


@writes("POST sites/{site}/fileUploads", TSC)
def new_upload(play: Playground) -> None:
    """An upload begins with 201 and the size 0."""
    upload = play.ask("POST", "fileUploads").succeeds(201).element("fileUpload")
    attribute(upload, "uploadSessionId")
    expect("0", attribute(upload, "fileSize"))


@writes(_APPEND, TSC)
def appended_block(play: Playground) -> None:
    """A block is answered 200 and the size of the file in megabytes."""
    session = play.upload()
    upload = play.append_block(session, b"x").succeeds(200).element("fileUpload")
    expect(session, attribute(upload, "uploadSessionId"))
    expect("1", attribute(upload, "fileSize"))


@writes(_APPEND, SAMPLES)
def encoded_session(play: Playground) -> None:
    """The identifier of an upload may be percent-encoded in a path."""
    play.append_block(quote(play.upload(), safe=""), b"x").succeeds(200)


@writes(_APPEND, REFERENCE)
def block_for_an_unknown_upload(play: Playground) -> None:
    """A block for an upload that does not exist is refused with 404015."""
    play.append_block(_NO_SESSION, b"x").is_refused("404015")


@writes(_APPEND, REFERENCE)
def block_with_a_request(play: Playground) -> None:
    """A block with a request that is not empty is refused with 400019."""
    parts = ("request_payload", "", "<tsRequest/>"), ("tableau_file", "file", b"x")
    play.send_parts("PUT", f"fileUploads/{play.upload()}", *parts).is_refused("400019")


@writes(_APPEND, REFERENCE)
def block_without_a_file(play: Playground) -> None:
    """A block without a file is refused with 400020."""
    path = f"fileUploads/{play.upload()}"
    play.send_parts("PUT", path, ("request_payload", "", "")).is_refused("400020")


@writes(_PUBLISH, TSC)
def publish_an_upload(play: Playground) -> None:
    """A file that was uploaded in blocks is published with all its rows."""
    file, name = rows_file(*ROWS), play.new_name()
    session = play.upload(file[:1000], file[1000:])
    request = ("request_payload", "", play.request(name))
    path = f"datasources?uploadSessionId={session}&datasourceType=hyper"
    answer = play.send_parts("POST", path, request).succeeds(201)
    expect(name, attribute(answer.element("datasource"), "name"))


@writes(_PUBLISH, REFERENCE)
def publish_an_upload_without_a_type(play: Playground) -> None:
    """The type of an uploaded file must be named; otherwise 400010."""
    session = play.upload(b"x")
    request = ("request_payload", "", play.request(play.new_name()))
    path = f"datasources?uploadSessionId={session}"
    play.send_parts("POST", path, request).is_refused("400010")


@writes(_PUBLISH, REFERENCE)
def publish_an_upload_and_a_file(play: Playground) -> None:
    """An upload and a file in one request are refused with 400010."""
    query = f"uploadSessionId={play.upload(b'x')}&datasourceType=hyper"
    play.publish(play.new_name(), query=query).is_refused("400010")


@writes(_PUBLISH, REFERENCE)
def publish_an_unknown_upload(play: Playground) -> None:
    """An upload that does not exist is refused with 404015."""
    request = ("request_payload", "", play.request(play.new_name()))
    path = f"datasources?uploadSessionId={_NO_SESSION}&datasourceType=hyper"
    play.send_parts("POST", path, request).is_refused("404015")


@writes(_PUBLISH, LIVE_TESTS)
def append_by_an_upload(play: Playground) -> None:
    """Rows of an uploaded file are appended to a data source."""
    target = play.published()
    session = play.upload(rows_file((3, "three")))
    request = ("request_payload", "", play.request(target.name))
    path = f"datasources?uploadSessionId={session}&datasourceType=hyper&append=true"
    play.send_parts("POST", path, request).succeeds(201)
    expect([*ROWS, (3, "three")], play.rows(target))


@writes("PATCH sites/{site}/datasources/{datasource}/data", UPDATE_GUIDE)
def upload_serves_one_update(play: Playground) -> None:
    """An upload that an update has used cannot be used again."""
    action = {"action": "insert", "target-table": "Extract", "source-table": "Extract"}
    session, target = play.upload(rows_file()), play.published()
    path = f"{target.path}/data?uploadSessionId={session}"
    play.finished(play.send_batch(path, [action]))
    play.send_batch(path, [action]).is_refused("404015")


@writes(_PUBLISH, NOBODY)
def publish_an_empty_upload(play: Playground) -> None:
    """An upload without a block is refused with 400000."""
    request = ("request_payload", "", play.request(play.new_name()))
    path = f"datasources?uploadSessionId={play.upload()}&datasourceType=hyper"
    play.send_parts("POST", path, request).is_refused("400000")


@writes(_APPEND, REFERENCE)
def blocks_by_number(play: Playground) -> None:
    """Numbered blocks make a file in the order of their numbers, whichever comes first."""
    play.scene.needs_version("3.27")
    file, session, name = rows_file(*ROWS), play.upload(), play.new_name()
    for number, block in ((2, file[1000:]), (1, file[:1000])):
        parts = ("request_payload", "", ""), ("tableau_file", "file", block)
        path = f"fileUploads/{session}?sequenceID={number}"
        play.send_parts("PUT", path, *parts).succeeds(200)
    request = ("request_payload", "", play.request(name))
    path = f"datasources?uploadSessionId={session}&datasourceType=hyper"
    answer = play.send_parts("POST", path, request).succeeds(201)
    expect(name, attribute(answer.element("datasource"), "name"))


@writes(_PUBLISH, UPDATE_GUIDE)
def upload_serves_one_publish(play: Playground) -> None:
    """An upload that was published cannot be used again."""
    session = play.upload(rows_file(*ROWS))
    path = f"datasources?uploadSessionId={session}&datasourceType=hyper"
    for code in ("", "404015"):
        answer = play.send_parts(
            "POST", path, ("request_payload", "", play.request(play.new_name()))
        )
        if code:
            answer.is_refused(code)
        else:
            answer.succeeds(201)
