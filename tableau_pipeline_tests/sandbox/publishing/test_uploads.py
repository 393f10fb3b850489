from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import tableauserverclient as tsc
from hypothesis import given, settings
from hypothesis import strategies as st

from tableau_pipeline.sandbox.testing import Sandbox
from tableau_pipeline_tests.sandbox.conftest import ALICE
from tableau_pipeline_tests.sandbox.samples import (
    call,
    code_of,
    multipart,
    publish,
    rows_of,
    rows_on_server,
    signed_in,
    write_hyper,
)

NO_PAYLOAD = ("request_payload", "", "")
REQUEST = '<tsRequest><datasource name="Uploaded"/></tsRequest>'


def append(sandbox: Sandbox, server: tsc.Server, upload: str, *parts: tuple[str, str, str | bytes]):
    body, content_type = multipart(*parts)
    path = f"sites/{{site}}/fileUploads/{upload}"
    headers = {"Content-Type": content_type}
    return call(sandbox, "PUT", path, server=server, data=body, headers=headers)


def append_block(
    sandbox: Sandbox, server: tsc.Server, upload: str, block: bytes, *, number: int | None = None
):
    query = "" if number is None else f"?sequenceID={number}"
    part = ("tableau_file", "file", block)
    return append(sandbox, server, f"{upload}{query}", NO_PAYLOAD, part)


def publish_upload(sandbox: Sandbox, server: tsc.Server, upload: str):
    body, content_type = multipart(("request_payload", "", REQUEST))
    query = f"uploadSessionId={upload}&datasourceType=hyper&overwrite=true"
    headers = {"Content-Type": content_type}
    path = f"sites/{{site}}/datasources?{query}"
    return call(sandbox, "POST", path, server=server, data=body, headers=headers)


@pytest.mark.slow
def test_large_file_in_blocks(server: tsc.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Prevents: the blocks of a large file are lost or put together in the wrong order.
    monkeypatch.setenv("TSC_FILESIZE_LIMIT_MB", "1")
    monkeypatch.setenv("TSC_CHUNK_SIZE_MB", "1")
    query = (
        "SELECT i, CAST(i AS BIGINT) * 1000003 % 15485863 AS a,"
        " CAST(i AS DOUBLE PRECISION) / 7 AS b FROM generate_series(1, 300000) AS g(i)"
    )
    file = write_hyper(tmp_path / "large.hyper", query)
    assert file.stat().st_size > 3 << 20
    published = publish(server, file)
    assert rows_on_server(server, published.id) == rows_of(file)
    assert published.size == -(-file.stat().st_size // (1 << 20))


def test_blocks_by_sequence_number(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: clients that send blocks in parallel get them mixed up.
    upload, content = server.fileuploads.initiate(), one_row.read_bytes()
    blocks = {1: content[:1000], 2: content[1000:30000], 3: content[30000:]}
    for number in (3, 1, 2):
        sent = append_block(sandbox, server, upload, blocks[number], number=number)
        assert sent.status_code == 200
    for wrong in (2, 0):
        refused = append_block(sandbox, server, upload, b"x", number=wrong)
        assert code_of(refused) == "400000"
    assert publish_upload(sandbox, server, upload.replace(":", "%3A")).status_code == 201
    (item,) = server.datasources.get()[0]
    assert rows_on_server(server, item.id) == [[1, "one"]]


@settings(max_examples=12, deadline=None)
@given(numbers=st.sets(st.integers(1, 6), min_size=1), data=st.data())
def test_blocks_with_gaps(
    shared_sandbox: Sandbox, shared_server: tsc.Server, numbers: set[int], data: st.DataObject
):
    """Prevents: a file that lacks a block is put together from the others, as if it were whole."""
    upload = shared_server.fileuploads.initiate()
    for number in data.draw(st.permutations(sorted(numbers))):
        append_block(shared_sandbox, shared_server, upload, b"%d" % number, number=number)
    missing = sorted(set(range(1, max(numbers))) - numbers)
    refused = publish_upload(shared_sandbox, shared_server, upload)
    if missing:
        assert f"lacks the block {missing[0]}." in refused.text
        assert code_of(refused) == "400000"
        # What is missing can still be sent.
        for number in missing:
            append_block(shared_sandbox, shared_server, upload, b"x", number=number)
        refused = publish_upload(shared_sandbox, shared_server, upload)
    # The file is whole, and no Hyper file.
    assert code_of(refused) == "400011"


def test_a_file_has_a_bounded_number_of_blocks(
    start_sandbox: Callable[..., Sandbox], one_row: Path
):
    # Prevents: a client that cuts a large file too finely is stopped in production only.
    sandbox = start_sandbox(upload_blocks=3)
    server = signed_in(sandbox, tsc.TableauAuth("admin", "admin"))
    upload, content = server.fileuploads.initiate(), one_row.read_bytes()
    for block in (content[:1000], content[1000:30000], content[30000:]):
        assert append_block(sandbox, server, upload, block).status_code == 200
    for number in (None, 4):
        assert code_of(append_block(sandbox, server, upload, b"x", number=number)) == "400016"
    assert publish_upload(sandbox, server, upload).status_code == 201
    (item,) = server.datasources.get()[0]
    assert rows_on_server(server, item.id) == [[1, "one"]]


def test_session_serves_one_publish(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a retry publishes an upload twice here, and is refused in production.
    upload = server.fileuploads.upload(str(one_row))
    assert publish_upload(sandbox, server, upload).status_code == 201
    assert code_of(publish_upload(sandbox, server, upload)) == "404015"
    assert code_of(append_block(sandbox, server, upload, b"x")) == "404015"


def test_refused_request_leaves_the_session(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a forbidden publish costs the upload that the corrected request needs.
    publish(server, one_row, name="Uploaded")
    upload = server.fileuploads.upload(str(one_row))
    body, content_type = multipart(("request_payload", "", REQUEST))
    path = f"sites/{{site}}/datasources?uploadSessionId={upload}&datasourceType=hyper"
    headers = {"Content-Type": content_type}
    refused = call(sandbox, "POST", path, server=server, data=body, headers=headers)
    assert code_of(refused) == "403007"
    assert publish_upload(sandbox, server, upload).status_code == 201


def test_append_refuses_what_is_no_block(sandbox: Sandbox, server: tsc.Server):
    # Prevents: a block without content, with a payload or without its part, counts as uploaded.
    upload = server.fileuploads.initiate()
    block = ("tableau_file", "file", b"x")
    assert code_of(append(sandbox, server, upload, ("request_payload", "", "x"), block)) == "400019"
    assert code_of(append(sandbox, server, upload, NO_PAYLOAD)) == "400020"
    assert code_of(append(sandbox, server, upload, block, block)) == "400010"
    assert code_of(append(sandbox, server, upload, block)) == "400000"
    assert code_of(append(sandbox, server, upload, NO_PAYLOAD, NO_PAYLOAD, block)) == "400000"
    assert code_of(append(sandbox, server, "1:unknown-0:0", NO_PAYLOAD, block)) == "404015"
    assert code_of(publish_upload(sandbox, server, upload)) == "400000"
    good = append(sandbox, server, upload, NO_PAYLOAD, block)
    assert 'fileSize="1"' in good.text


def test_block_above_the_limit(sandbox: Sandbox, server: tsc.Server):
    # Prevents: block sizes that no server takes are found out in production.
    upload = server.fileuploads.initiate()

    def body() -> Iterator[bytes]:
        yield b"--b\r\nContent-Disposition: name=request_payload\r\n\r\n\r\n"
        yield b"--b\r\nContent-Disposition: name=tableau_file; filename=f\r\n\r\n"
        for _ in range(65):
            yield bytes(1 << 20)
        yield b"\r\n--b--\r\n"

    response = call(
        sandbox,
        "PUT",
        f"sites/{{site}}/fileUploads/{upload}",
        server=server,
        data=body(),
        headers={"Content-Type": "multipart/mixed; boundary=b"},
    )
    assert code_of(response) == "400016"


def test_session_belongs_to_its_user(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: someone publishes what someone else has uploaded.
    upload = server.fileuploads.upload(str(one_row))
    alice = signed_in(sandbox, tsc.TableauAuth(ALICE.name, ALICE.password))
    assert code_of(publish_upload(sandbox, alice, upload)) == "404015"
    assert publish_upload(sandbox, server, upload).status_code == 201


def test_sessions_expire_and_are_swept(
    start_sandbox: Callable[..., Sandbox], tmp_path: Path, one_row: Path
):
    # Prevents: abandoned uploads fill the disk.
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    sandbox = start_sandbox(clock=lambda: now[0], upload_hours=1)
    server = signed_in(sandbox, tsc.TableauAuth("admin", "admin"))
    upload = server.fileuploads.upload(str(one_row))
    now[0] += timedelta(hours=1)
    assert code_of(publish_upload(sandbox, server, upload)) == "404015"
    server.fileuploads.initiate()
    assert list((tmp_path / "sandbox" / "uploads").iterdir()) == []
