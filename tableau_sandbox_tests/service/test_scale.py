"""Many clients at once, and large files."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import publish, rows_on_server, signed_in
from tableau_sandbox_tests.service.command import started_sandbox


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
