"""Many data sources, many clients at once, and large files."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.control import Control
from tableau_sandbox.identity import new_luid
from tableau_sandbox.options import Options
from tableau_sandbox.services import open_services
from tableau_sandbox.store.records import Datasource
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import publish, rows_on_server, signed_in
from tableau_sandbox_tests.service.command import started_sandbox

MANY = 2_000


@pytest.fixture
def crowded(sandbox: Sandbox, server: tsc.Server, one_row: Path) -> tsc.Server:
    """A server with the data sources N0000 ... N1999; each seventh is tagged."""
    luid = publish(server, one_row, name="N0000").id
    sandbox.stop()
    with open_services(Options(data_dir=sandbox.data_dir), Control()) as services:
        first = services.database.find(Datasource, luid=luid)
        assert first is not None
        with services.database.transaction():
            for number in range(1, MANY):
                name, copy = f"N{number:04}", new_luid()
                made = replace(first, luid=copy, name=name, content_url=name)
                services.database.save("datasource", vars(made))
                if number % 7 == 0:
                    services.database.add("tag", datasource=copy, label="seventh")
    sandbox.start()
    return server


@pytest.mark.slow
def test_thousands_of_data_sources(crowded: tsc.Server, two_rows: Path):
    # Prevents: a site of usual size loses items between pages, or makes every request crawl.
    started = time.monotonic()
    for size in (1000, 300):
        items = tsc.Pager(crowded.datasources, tsc.RequestOptions(pagesize=size))
        assert sorted(str(item.name) for item in items) == [f"N{n:04}" for n in range(MANY)]
    (found,) = crowded.datasources.filter(name="N1234")
    assert len(crowded.datasources.filter(tags="seventh")) == (MANY - 1) // 7
    newest = crowded.datasources.all().order_by("-name").paginate(page_number=1, page_size=1)
    assert next(iter(newest)).name == "N1999"
    assert publish(crowded, two_rows, name="n1234", mode="Overwrite").id == found.id
    crowded.datasources.delete(found.id)
    # Its file was that of all others, too.
    (other,) = crowded.datasources.filter(name="N0001")
    assert len(rows_on_server(crowded, other.id)) == 1
    assert time.monotonic() - started < 120


@pytest.mark.slow
def test_publishing_and_reading_at_once(
    start_sandbox: Callable[..., Sandbox], one_row: Path, two_rows: Path
):
    # Prevents: two publishes get mixed up, or a reader finds the file gone that it was to read.
    sandbox = start_sandbox(kept_revisions=1)
    contents = {one_row: [[1, "one"]], two_rows: [[1, "one"], [2, "two"]]}

    luid = publish(signed_in(sandbox), one_row).id

    def publish_often(file: Path) -> list[str]:
        publisher = signed_in(sandbox)
        return [publish(publisher, file, mode="Overwrite").id for _ in range(8)]

    def read_often() -> list[list[list]]:
        reader = signed_in(sandbox)
        return [rows_on_server(reader, luid) for _ in range(8)]

    with ThreadPoolExecutor() as executor:
        publishing = [executor.submit(publish_often, file) for file in contents]
        reading = [executor.submit(read_often) for _ in range(2)]
        assert {found for future in publishing for found in future.result()} == {luid}
        assert all(rows in contents.values() for future in reading for rows in future.result())
    assert len(list((sandbox.data_dir / "content").iterdir())) == 1


@pytest.mark.slow
def test_uploads_are_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Prevents: a large upload, or many at once, take the machine's memory.
    monkeypatch.setenv("TSC_FILESIZE_LIMIT_MB", "1")
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(400 << 20)
    with started_sandbox(tmp_path / "data") as (process, url):
        server = signed_in(url)
        before = memory_of(process.pid)
        uploads = [server.fileuploads.upload(str(large)) for _ in range(2)]
        assert len(set(uploads)) == 2
        assert memory_of(process.pid) - before < 100 << 20


def memory_of(process: int) -> int:
    """The most memory that a process has had so far, in bytes."""
    status = Path(f"/proc/{process}/status")
    if not status.exists():
        pytest.skip("only Linux tells how much memory a process has had")
    lines = status.read_text("utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10
