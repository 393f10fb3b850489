import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tableau_pipeline.objects.local import LocalCopies
from tableau_pipeline.snapshots.retention import collect
from tableau_pipeline.snapshots.store import LocalStorage, ObjectStorage, SnapshotStore, Storage
from tableau_pipeline_tests.snapshots.support.samples import rows
from tableau_pipeline_tests.snapshots.support.versions import commit


@pytest.fixture(params=["on a disk", "objects"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty one."""
    root = tmp_path / "root"
    root.mkdir()
    if request.param == "on a disk":
        return LocalStorage(root)
    # The library that speaks to object stores also has one on a disk, without folders.
    return ObjectStorage(root.as_uri(), LocalCopies(tmp_path / "copies", limit=10**6))


def keys(storage: Storage, prefix: str = "") -> set[str]:
    """Those with a content."""
    return {entry.key for entry in storage.list(prefix) if not entry.is_folder}


def test_what_exists_is_never_replaced(storage: Storage):
    """Prevents: a version that is another one after a run has read it."""
    assert storage.put("a/1", b"first")
    assert not storage.put("a/1", b"second")
    assert storage.read("a/1") == b"first"
    assert keys(storage) == {"a/1"}


def test_one_of_many_wins(storage: Storage):
    """Prevents: two writers of which both believe that the number is theirs."""
    together = Barrier(20)

    def put(number: int) -> bool:
        together.wait()
        return storage.put("a/1", str(number).encode())

    with ThreadPoolExecutor(20) as executor:
        won = [*executor.map(put, range(20))]
    assert won.count(True) == 1
    assert storage.read("a/1") == str(won.index(True)).encode()
    assert keys(storage) == {"a/1"}


def test_keys_are_listed_by_their_beginning(storage: Storage):
    """Prevents: a model that shows up among the versions of another, or one that is overlooked."""
    for key in ("a/v-1/x/y", "a/v-2", "a/w", "ab", "%2E/@v"):
        storage.put(key, b"")
    for prefix, found in {
        "": {"a/v-1/x/y", "a/v-2", "a/w", "ab", "%2E/@v"},
        "a/": {"a/v-1/x/y", "a/v-2", "a/w"},
        "a/v-": {"a/v-1/x/y", "a/v-2"},
        "a": {"a/v-1/x/y", "a/v-2", "a/w", "ab"},
        "a/v-2/": set(),
        "c/": set(),
    }.items():
        assert keys(storage, prefix) == found, prefix


def test_what_is_deleted_is_gone(storage: Storage):
    """Prevents: a key that two collections each believe to have removed."""
    storage.put("a/b/1", b"")
    assert [storage.delete("a/b/1") for _ in range(2)] == [True, False]
    assert storage.read("a/b/1") is None
    assert keys(storage) == set()
    assert storage.put("a/b/1", b"again")


def test_a_folder_goes_once_it_is_empty(tmp_path: Path):
    """Prevents: empty folders for ever on the disk, or a full one that is removed."""
    storage = LocalStorage(tmp_path)
    storage.put("a/b/1", b"")
    assert {entry.key for entry in storage.list("a/")} == {"a/", "a/b/", "a/b/1"}
    assert not storage.delete("a/b/")
    assert [storage.delete(key) for key in ("a/b/1", "a/b/", "a/")] == [True] * 3
    assert [*storage.list("")] == []


def test_a_network_file_system_repeats_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a version that is stored twice, as the answer to its first link was lost."""
    link = os.link

    def repeated(*paths: Path) -> None:
        link(*paths)
        link(*paths)

    monkeypatch.setattr(os, "link", repeated)
    storage = LocalStorage(tmp_path)
    assert storage.put("1", b"mine")
    assert not storage.put("1", b"other")
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_versions_need_nothing_else(storage: Storage):
    """Prevents: a manifest that is read or removed past the storage, where there is no disk."""
    store = SnapshotStore(storage)
    commit(store, "jan", "feb")
    last = commit(store, "feb", rows=2)
    assert rows(store.newest("model")) == {"feb": 2, "jan": 1}
    assert collect(store, keep_days=-1, referenced=set) == [("model", 1)]
    assert (store.numbers("model"), store.newest("model")) == ([2], last)
    # A manifest, and the files of both partitions.
    assert len(keys(storage)) == 3
