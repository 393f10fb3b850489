"""Publishing: at once, in the background, in blocks, over what is there."""

from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import (
    call,
    code_of,
    default_project,
    execute,
    publish,
    rows_on_server,
    send_parts,
    tds_of,
    write_hyper,
)
from tableau_sandbox_tests.updates.test_update_data import CLEAR, update

ONE, TWO = [1, "one"], [2, "two"]


@pytest.mark.parametrize("replace", ["keeps-metadata", "like-overwrite"])
def test_replace(new_server: NewServer, tmp_path: Path, one_row: Path, replace: str):
    # Prevents: a refresh drops the calculated fields that analysts have added, or the pipeline is
    # tested against one of two readings of Replace only.
    _, server = new_server(replace=replace)
    more = write_hyper(tmp_path / "more.hyper", "SELECT 1 AS id, 'one' AS name, 2 AS extra")
    first = publish(server, one_row)
    metadata = tds_of(server, first.id, tmp_path)
    publish(server, more, mode="Replace")
    assert rows_on_server(server, first.id) == [[1, "one", 2]]
    assert (tds_of(server, first.id, tmp_path) == metadata) == (replace == "keeps-metadata")
    publish(server, more, mode="Overwrite")
    assert "extra" in tds_of(server, first.id, tmp_path)


def test_any_name_is_only_a_name(server: tsc.Server, sandbox: Sandbox, one_row: Path):
    # Prevents: a name leads out of the data directory, or breaks XML, headers or packages.
    for name in ("../../escape", "a/b\\c", "Ünï ço∂é", "q\"uo'te<&>", "x" * 255, "..", "%2F"):
        published = publish(server, one_row, name=name)
        assert server.datasources.get_by_id(published.id).name == name
        assert rows_on_server(server, published.id) == [ONE]
        assert sandbox.hyper_file(published.id).parent == sandbox.data_dir / "content"
    assert {path.name for path in sandbox.data_dir.parent.iterdir()} == {"sandbox"}


def test_replace_may_be_refused(new_server: NewServer, one_row: Path, two_rows: Path):
    # Prevents: a pipeline has no other way on servers that do not know the mode.
    sandbox, server = new_server(replace="refused")
    item = publish(server, one_row)
    for as_job in (False, True):
        again = tsc.DatasourceItem(default_project(server), name="Flights")
        with pytest.raises(tsc.ServerResponseError, match="400000"):
            server.datasources.publish(again, two_rows, "Replace", as_job=as_job)
    assert list(server.jobs.filter()) == []
    assert rows_on_server(server, item.id) == [ONE]
    # An upload outlives the refusal.
    upload = server.fileuploads.upload(str(two_rows))
    request = ("request_payload", "", '<tsRequest><datasource name="Flights"/></tsRequest>')
    for mode, status in (("replace", 400), ("overwrite", 201)):
        query = f"uploadSessionId={upload}&datasourceType=hyper&{mode}=true"
        path = f"sites/{{site}}/datasources?{query}"
        answer = send_parts(sandbox, server, "POST", path, request)
        assert answer.status_code == status, answer.text


def test_renamed_and_moved(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a refused change is made in part; a name is taken twice by a move; a job goes by
    # the former name.
    other = server.projects.create(tsc.ProjectItem("Other"))
    item, taken = publish(server, one_row), publish(server, one_row, name="Taken")
    path = f"sites/{{site}}/datasources/{item.id}"

    def put(name: str, project: str | None = item.project_id) -> str:
        body = f'<datasource name="{name}"><project id="{project}"/></datasource>'
        body = f"<tsRequest>{body}</tsRequest>"
        answer = call(sandbox, "PUT", path, server=server, data=body)
        return "" if answer.ok else code_of(answer)

    assert put("Renamed", "nowhere") == "404005"
    assert server.datasources.get_by_id(item.id).name == "Flights"
    # The own name is free, in any case of letters; so is a taken one in another project.
    assert [put("FLIGHTS"), put("Taken", other.id), put("Taken", taken.project_id)] == [
        *("", "", "409015")
    ]
    found = server.datasources.get_by_id(item.id)
    assert (found.name, found.project_name) == ("Taken", "Other")
    job = update(server, item, CLEAR)
    sandbox.wait_until_idle()
    assert [job.title for job in server.jobs.filter()] == ["Taken"]
    assert server.jobs.get_by_id(job.id).datasource_name == "Taken"


def test_rows_are_added(server: tsc.Server, tmp_path: Path):
    # Prevents: an append mixes up columns, changes the model, or breaks a promise of the table.
    create = 'CREATE TABLE "Extract"."Extract" (id INTEGER NOT NULL, name TEXT)'
    first = publish(server, execute(tmp_path / "strict.hyper", create))
    metadata = tds_of(server, first.id, tmp_path)
    null = write_hyper(tmp_path / "null.hyper", "SELECT CAST(NULL AS INTEGER) AS id, '' AS name")
    with pytest.raises(tsc.ServerResponseError, match="400011"):
        publish(server, null, mode="Append")
    more = write_hyper(tmp_path / "more.hyper", "SELECT 'three' AS name, 3 AS id")
    publish(server, more, mode="Append")
    assert rows_on_server(server, first.id) == [[3, "three"]]
    assert tds_of(server, first.id, tmp_path) == metadata


NO_PAYLOAD = ("request_payload", "", "")
UPLOADED = '<tsRequest><datasource name="Uploaded"/></tsRequest>'


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
    return send_parts(sandbox, server, "POST", path, ("request_payload", "", UPLOADED))


def test_blocks_with_gaps(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a file that lacks a block is put together from the others, as if it were whole."""
    upload, content = server.fileuploads.initiate(), one_row.read_bytes()
    blocks = {
        4: content[30_000:],
        1: content[:1000],
        3: content[2000:30_000],
        2: content[1000:2000],
    }
    for number, block in blocks.items():
        refused = publish_upload(sandbox, server, upload)
        assert code_of(refused) == "400000"
        assert append_block(sandbox, server, upload, block, number=number).status_code == 200
        # Another block with this number is not taken.
        assert code_of(append_block(sandbox, server, upload, b"x", number=number)) == "400000"
    assert "lacks the block 2." in refused.text
    assert code_of(append_block(sandbox, server, upload, b"x", number=0)) == "400000"
    assert publish_upload(sandbox, server, upload).status_code == 201


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
