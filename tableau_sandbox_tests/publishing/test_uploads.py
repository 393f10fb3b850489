from datetime import UTC, datetime, timedelta
from pathlib import Path

import tableauserverclient as tsc
from hypothesis import given, settings
from hypothesis import strategies as st

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import (
    code_of,
    publish,
    rows_on_server,
    send_parts,
)

NO_PAYLOAD = ("request_payload", "", "")
REQUEST = '<tsRequest><datasource name="Uploaded"/></tsRequest>'


def append(sandbox: Sandbox, server: tsc.Server, upload: str, *parts: tuple[str, str, str | bytes]):
    return send_parts(sandbox, server, "PUT", f"sites/{{site}}/fileUploads/{upload}", *parts)


def append_block(
    sandbox: Sandbox, server: tsc.Server, upload: str, block: bytes, *, number: int | None = None
):
    query = "" if number is None else f"?sequenceID={number}"
    part = ("tableau_file", "file", block)
    return append(sandbox, server, f"{upload}{query}", NO_PAYLOAD, part)


def publish_upload(
    sandbox: Sandbox, server: tsc.Server, upload: str, more: str = "&overwrite=true"
):
    path = f"sites/{{site}}/datasources?uploadSessionId={upload}&datasourceType=hyper{more}"
    return send_parts(sandbox, server, "POST", path, ("request_payload", "", REQUEST))


@settings(max_examples=12)
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


def test_a_file_has_a_bounded_number_of_blocks(new_server: NewServer, one_row: Path):
    # Prevents: a client that cuts a large file too finely is stopped in production only.
    sandbox, server = new_server(upload_blocks=3)
    upload, content = server.fileuploads.initiate(), one_row.read_bytes()
    for block in (content[:1000], content[1000:30000], content[30000:]):
        assert append_block(sandbox, server, upload, block).status_code == 200
    for number in (None, 4):
        assert code_of(append_block(sandbox, server, upload, b"x", number=number)) == "400016"
    assert publish_upload(sandbox, server, upload).status_code == 201
    (item,) = server.datasources.get()[0]
    assert rows_on_server(server, item.id) == [[1, "one"]]


def test_refused_request_leaves_the_session(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a forbidden publish costs the upload that the corrected request needs.
    publish(server, one_row, name="Uploaded")
    upload = server.fileuploads.upload(str(one_row))
    assert code_of(publish_upload(sandbox, server, upload, "")) == "403007"
    assert publish_upload(sandbox, server, upload).status_code == 201


def test_sessions_expire_and_are_swept(new_server: NewServer, tmp_path: Path, one_row: Path):
    # Prevents: abandoned uploads fill the disk.
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    sandbox, server = new_server(clock=lambda: now[0], upload_hours=1)
    upload = server.fileuploads.upload(str(one_row))
    now[0] += timedelta(hours=1)
    assert code_of(publish_upload(sandbox, server, upload)) == "404015"
    server.fileuploads.initiate()
    assert list((tmp_path / "sandbox" / "uploads").iterdir()) == []
