from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import (
    call,
    execute,
    multipart,
    publish,
    rows_on_server,
    tds_of,
    write_hyper,
)

ONE, TWO = [[1, "one"]], [[1, "one"], [2, "two"]]


def test_overwrite_keeps_identity(server: tsc.Server, one_row: Path, two_rows: Path):
    # Prevents: dashboards lose their data source on a refresh, or two refreshes look like one.
    first = publish(server, one_row, mode="Overwrite")
    server.datasources.add_tags(first, ["kept"])
    times = {first.updated_at}
    for _ in range(3):
        again = publish(server, two_rows, mode="Overwrite")
        times.add(again.updated_at)
        assert (again.id, again.content_url) == (first.id, first.content_url)
    assert len(times) == 4
    assert again.tags == {"kept"}
    assert again.created_at == first.created_at
    assert rows_on_server(server, first.id) == TWO


def test_replace_changes_data_only(server: tsc.Server, tmp_path: Path, one_row: Path):
    # Prevents: a refresh drops the calculated fields that analysts have added.
    more = write_hyper(tmp_path / "more.hyper", "SELECT 1 AS id, 'one' AS name, 2 AS extra")
    with pytest.raises(tsc.ServerResponseError, match="404004"):
        publish(server, one_row, mode="Replace")
    first = publish(server, one_row)
    metadata = tds_of(server, first.id, tmp_path)
    publish(server, more, mode="Replace")
    assert rows_on_server(server, first.id) == [[1, "one", 2]]
    assert tds_of(server, first.id, tmp_path) == metadata
    publish(server, more, mode="Overwrite")
    assert "extra" in tds_of(server, first.id, tmp_path)


def test_any_name_is_only_a_name(server: tsc.Server, sandbox: Sandbox, one_row: Path):
    # Prevents: a name leads out of the data directory, or breaks XML, headers or packages.
    for name in ("../../escape", "a/b\\c", "Ünï ço∂é", "q\"uo'te<&>", "x" * 255, "..", "%2F"):
        published = publish(server, one_row, name=name)
        assert server.datasources.get_by_id(published.id).name == name
        assert rows_on_server(server, published.id) == ONE
        assert sandbox.hyper_file(published.id).parent == sandbox.data_dir / "content"
    assert {path.name for path in sandbox.data_dir.parent.iterdir()} == {"sandbox"}


def test_file_without_tables_or_columns(server: tsc.Server, tmp_path: Path):
    # Prevents: an empty extract replaces a good one.
    with pytest.raises(tsc.ServerResponseError, match=r"400011.*\n.*contains no tables"):
        publish(server, execute(tmp_path / "empty.hyper"))
    bare = execute(tmp_path / "bare.hyper", 'CREATE TABLE "Extract"."t" ()')
    with pytest.raises(tsc.ServerResponseError, match=r'"Extract"."t" has no columns'):
        publish(server, bare)


def test_terse_and_streamed_request(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: clients that name no type, or send chunks without telling a length, cannot publish.
    body, content_type = multipart(
        ("request_payload", "", REQUEST), ("tableau_datasource", "x.hyper", one_row.read_bytes())
    )
    chunks = (body[start : start + 1000] for start in range(0, len(body), 1000))
    headers = {"Content-Type": content_type}
    response = call(
        sandbox, "POST", "sites/{site}/datasources", server=server, data=chunks, headers=headers
    )
    assert response.status_code == 201, response.text
    (item,) = server.datasources.get()[0]
    assert rows_on_server(server, item.id) == ONE


REQUEST = '<tsRequest><datasource name="Raw"/></tsRequest>'
