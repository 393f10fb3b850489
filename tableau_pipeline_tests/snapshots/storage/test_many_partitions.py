from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.snapshots.store import Entry, LocalStorage, SnapshotStore
from tableau_pipeline_tests.snapshots.support.hours import commit_hours
from tableau_pipeline_tests.snapshots.support.samples import rows
from tableau_pipeline_tests.snapshots.support.versions import commit, manifest

PROCESSES, THREADS = 4, 5


@dataclass(frozen=True, slots=True)
class Counting(LocalStorage):
    """Counts what is opened: files that are read, and folders that are listed."""

    opened: Counter[str] = field(default_factory=Counter)

    def read(self, key: str) -> bytes | None:
        self.opened[key] += 1
        return LocalStorage.read(self, key)

    def list(self, prefix: str) -> Iterator[Entry]:
        self.opened[prefix] += 1
        return LocalStorage.list(self, prefix)


def test_a_year_of_hours_is_one_file(store: SnapshotStore):
    """Prevents: a look at the partitions of a model that opens a file, or a folder, for each."""
    commit_hours(store, 8_760)
    storage = Counting(store.root)
    found = SnapshotStore(storage).newest("model")
    assert found
    assert len(found.parts) == 8_760
    assert storage.opened.total() <= 3
    # A commit reads them once more.
    commit(SnapshotStore(storage), "new")
    assert storage.opened.total() <= 6
    assert manifest(store, 1).stat().st_size < 400 * 8_760


def test_a_moved_folder_keeps_its_versions(store: SnapshotStore):
    """Prevents: partitions whose files are looked for where the data folder once was."""
    commit(store, "jan", "feb")
    before = commit(store, "feb", rows=2)
    moved = SnapshotStore(store.root.rename(store.root.with_name("new place")))
    after = commit(moved, "mar")
    assert rows(after) == {"feb": 2, "jan": 1, "mar": 1}
    assert [part.version for part in after.parts] == [2, 1, 3]
    assert after.missing() == []
    assert str(before.folder.path) not in manifest(moved, 3).read_text("utf-8")


@pytest.mark.slow
def test_twenty_writers_at_once(store: SnapshotStore):
    """Prevents: runs of a backfill, each of a partition, of which some fail or are lost."""
    context = get_context("spawn")
    together = context.Barrier(PROCESSES)
    processes = [
        context.Process(target=write, args=(store.root, number, together))
        for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    wanted = {f"{number}-{each}" for number in range(PROCESSES) for each in range(THREADS)}
    assert store.numbers("model") == [*range(1, len(wanted) + 1)]
    versions = [store.version("model", number) for number in store.numbers("model")]
    # Each version has all partitions of the one before, and one more.
    assert [len(rows(each)) for each in versions] == store.numbers("model")
    assert set(rows(versions[-1])) == wanted
    assert [each.missing() for each in versions if each] == [[]] * len(wanted)


def write(root: Path, number: int, together: Barrier) -> None:
    """What one of the processes does: five partitions at once."""
    store = SnapshotStore(root)

    def one(each: int) -> Snapshot:
        return commit(store, f"{number}-{each}")

    together.wait(60)
    with ThreadPoolExecutor(THREADS) as executor:
        assert len([*executor.map(one, range(THREADS))]) == THREADS
