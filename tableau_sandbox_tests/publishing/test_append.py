import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tableauserverclient as tsc
from tableauserverclient.server.endpoint.exceptions import JobFailedException

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import (
    default_project,
    execute,
    publish,
    rows_on_server,
    signed_in,
    tds_of,
    write_hyper,
)


@pytest.fixture
def more(tmp_path: Path) -> Path:
    """A file with one more row, its columns in another order."""
    return write_hyper(tmp_path / "more.hyper", "SELECT 'three' AS name, 3 AS id")


def test_rows_are_added(server: tsc.Server, tmp_path: Path, one_row: Path, more: Path):
    # Prevents: an append replaces the rows, mixes up columns, or makes another data source.
    with pytest.raises(tsc.ServerResponseError, match="404004"):
        publish(server, more, mode="Append")
    first = publish(server, one_row)
    metadata = tds_of(server, first.id, tmp_path)
    assert publish(server, more, mode="Append").id == first.id
    assert rows_on_server(server, first.id) == [[1, "one"], [3, "three"]]
    assert tds_of(server, first.id, tmp_path) == metadata


def test_null_where_none_may_be(server: tsc.Server, tmp_path: Path):
    # Prevents: an append breaks a promise of the table, or ends in an error of the sandbox.
    strict = execute(
        tmp_path / "strict.hyper", 'CREATE TABLE "Extract"."Extract" (id INTEGER NOT NULL)'
    )
    publish(server, strict)
    null = write_hyper(tmp_path / "null.hyper", "SELECT CAST(NULL AS INTEGER) AS id")
    with pytest.raises(tsc.ServerResponseError, match="400011"):
        publish(server, null, mode="Append")


COUNT = 'SELECT count(*) FROM "Extract"."Extract"'


@pytest.fixture(scope="module")
def two_million_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file so large that an append to it takes a while."""
    query = "SELECT i AS id, CAST(i AS TEXT) AS name FROM generate_series(1, 2000000) AS g(i)"
    return write_hyper(tmp_path_factory.mktemp("files") / "large.hyper", query)


@pytest.mark.slow
def test_reading_while_rows_are_added(
    sandbox: Sandbox, server: tsc.Server, two_million_rows: Path, one_row: Path
):
    """Prevents: whoever asks while a large file is appended to waits until that is done."""
    large = publish(server, two_million_rows)
    other = signed_in(sandbox, tsc.TableauAuth(sandbox.user, sandbox.password))
    waits = []
    with ThreadPoolExecutor(1) as executor:
        started = time.monotonic()
        appending = executor.submit(publish, other, one_row, mode="Append")
        while not appending.done():
            asked = time.monotonic()
            server.datasources.get_by_id(large.id)
            waits.append(time.monotonic() - asked)
        took = time.monotonic() - started
    assert rows_on_server(server, appending.result().id, COUNT) == [[2_000_001]]
    assert max(waits) < took / 2, (took, waits)


@pytest.mark.slow
def test_other_names_while_rows_are_added(
    sandbox: Sandbox, server: tsc.Server, two_million_rows: Path, one_row: Path
):
    """Prevents: the rows of one data source are stored in another one that got its name."""
    target = publish(server, two_million_rows)
    other = publish(server, one_row, name="Other")
    with ThreadPoolExecutor(1) as executor:
        writer = signed_in(sandbox, tsc.TableauAuth(sandbox.user, sandbox.password))
        appending = executor.submit(publish, writer, one_row, mode="Append")
        while not list((sandbox.data_dir / "incoming").glob("*.appended")):
            assert not appending.done()
        for item, name in ((target, "Former"), (other, "Flights")):
            item.name = name
            server.datasources.update(item)
        with pytest.raises(tsc.ServerResponseError, match=r"400011.*\n.*was moved meanwhile"):
            appending.result()
    assert rows_on_server(server, target.id, COUNT) == [[2_000_000]]
    assert rows_on_server(server, other.id, COUNT) == [[1]]
    assert list((sandbox.data_dir / "incoming").iterdir()) == []


def test_deleted_before_rows_are_added(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: an append that was queued brings a deleted data source back."""
    published = publish(server, one_row)
    with sandbox.held_jobs():
        item = tsc.DatasourceItem(default_project(server), name="Flights")
        job = server.datasources.publish(item, one_row, "Append", as_job=True)
        server.datasources.delete(published.id)
    with pytest.raises(JobFailedException):
        server.jobs.wait_for_job(job, timeout=20)
    assert server.datasources.get()[0] == []
    assert list((sandbox.data_dir / "incoming").iterdir()) == []
