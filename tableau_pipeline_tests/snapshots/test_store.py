"""Versions in a store, and what that asks of a disk or an object store."""

import gc
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest
from pyspark.sql import SparkSession

from tableau_pipeline.core.snapshot import Fingerprint, Snapshot
from tableau_pipeline.errors import DamagedSnapshotError
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.objects.local import LocalCopies
from tableau_pipeline.snapshots.retention import collect
from tableau_pipeline.snapshots.store import LocalStorage, ObjectStorage, SnapshotStore, Storage
from tableau_pipeline_tests.snapshots.support import (
    CountingStorage,
    age,
    commit,
    manifest,
    models,
    newest,
    rows,
    written,
)
from tableau_pipeline_tests.snapshots.support import store as stored


def test_the_manifest_is_the_commit(store: SnapshotStore):
    """Prevents: a version that is read while its files are still being written."""
    written(store, [None])
    assert store.newest("model") is None
    first = commit(store)
    written(store, [None])
    assert store.newest("model") == first
    assert (first.number, store.numbers("model")) == (1, [1])


def test_the_number_decides_and_no_clock(store: SnapshotStore):
    """Prevents: a worker whose clock is ahead that hides what others write after it."""
    ahead = commit(store)
    late = ahead.model_copy(update={"created_at": ahead.created_at + timedelta(minutes=3)})
    manifest(store, 1).write_text(late.manifest(), "utf-8")
    age(manifest(store, 1).parent, -1)
    second = commit(store)
    assert store.newest("model") == second
    assert [store.version("model", number) for number in (1, 2, 3)] == [late, second, None]


def test_a_version_is_never_overwritten(store: SnapshotStore):
    """Prevents: two writers of one number, of which one is lost silently."""
    asked: list[tuple[int, int | None]] = []
    parts = written(store, ["mine"])

    def make(number: int, before: Snapshot | None) -> Snapshot:
        asked.append((number, before.number if before else None))
        if len(asked) < 3:
            commit(store, f"other {number}")
        found = store.newest("model")
        assert found
        kept = before.parts if before else ()
        return found.model_copy(update={"number": number, "parts": (*kept, *parts)})

    mine = store.commit("model", make)
    assert asked == [(1, None), (2, 1), (3, 2)]
    assert mine.number == 3
    assert set(rows(mine)) == {"other 1", "other 2", "mine"}
    assert [each.suffix for each in manifest(store, 1).parent.iterdir()] == [".json"] * 3


def test_many_threads_at_once(store: SnapshotStore):
    """Prevents: two writers that wait for each other, or that step on each other for ever."""
    with ThreadPoolExecutor(8) as executor:
        numbers = [*executor.map(lambda key: commit(store, str(key)).number, range(60))]
    assert sorted(numbers) == list(range(1, 61))
    assert len(rows(store.newest("model"))) == 60


def test_a_year_of_hours_is_one_file(store: SnapshotStore):
    """Prevents: a look at the partitions of a model that opens a file, or a folder, for each."""
    first = commit(store, "0")
    (part,) = first.parts
    hours = tuple(part.model_copy(update={"partition": f"{hour:04}"}) for hour in range(8_760))
    store.commit(
        "model", lambda number, _: first.model_copy(update={"number": number, "parts": hours})
    )
    counting = CountingStorage(LocalStorage(store.root))
    found = SnapshotStore(counting).newest("model")
    assert found
    assert len(found.parts) == 8_760
    assert counting.calls == {"list": 1, "read": 1}
    # A commit reads them once more.
    commit(SnapshotStore(counting), "new")
    assert counting.calls == {"list": 2, "read": 2, "put": 2}
    assert manifest(store, 2).stat().st_size < 400 * 8_760


@pytest.mark.parametrize(
    "below", ["sales/eu", "sales/versions", "sales/data", "sales/@versions", "sales/@data", "sal"]
)
def test_a_model_below_another_is_none_of_its_versions(store: SnapshotStore, below: str):
    """Prevents: a model that passes for a version, or for the files, of another one."""
    commit(store, asset_key="sales", rows=1)
    commit(store, asset_key=below, rows=2)
    for key, expected in (("sales", 1), (below, 2)):
        found = store.newest(key)
        assert found
        assert (found.asset_key, found.number) == (key, 1)
        assert rows(found) == {None: expected}
    assert models(store) == {"sales", below}


def test_folders_are_named_after_models(store: SnapshotStore):
    """Prevents: models that share a folder, or that escape from the data directory."""
    keys = ["a/b", "a b", "a%20b", "a", "b", "ä.b", "[x]", "a\\b", "*", "a/../b", "a/./b", "@data"]
    for key in keys:
        commit(store, asset_key=key)
    folders = [store.folder(key).path for key in keys]
    assert len(set(folders)) == len(keys)
    root = store.root.resolve()
    assert all(folder.resolve().is_relative_to(root) for folder in folders)
    assert all(set("[]*\\ ").isdisjoint(str(f.relative_to(root))) for f in folders)
    assert models(store) == set(keys)
    assert models(SnapshotStore(root / "nowhere")) == set()


def test_the_newest_write_tells_whether_a_model_is_partitioned(store: SnapshotStore):
    """Prevents: rows twice after a model was partitioned, or no longer is."""
    commit(store, "jan", "feb")
    assert rows(commit(store, rows=3)) == {None: 3}
    assert rows(commit(store, "feb")) == {"feb": 1}


def test_parts_of_other_columns_say_so(store: SnapshotStore):
    """Prevents: a column that is silently NULL, or missing, in the partitions of another age."""
    one, two = (Column("id", "bigint"),), (Column("id", "bigint"), Column("n", "int"))
    commit(store, "jan", "feb", columns=one)
    widened = commit(store, "mar", columns=two)
    assert widened.columns == two
    assert [part.columns for part in widened.parts] == [one, one, None]
    assert store.newest("model") == widened
    back = commit(store, "apr", columns=one)
    assert {part.partition: part.columns for part in back.parts} == {
        "apr": None, "feb": None, "jan": None, "mar": two,
    }  # fmt: skip
    old = widened.only(["jan", "feb"])
    assert (old.columns, old.data_version) == (one, back.only(["jan", "feb"]).data_version)
    assert widened.data_version != back.data_version


def test_an_unknown_manifest_is_not_half_understood(store: SnapshotStore):
    """Prevents: a field of a later version, which changes the meaning, that is overlooked."""
    path = manifest(store, commit(store).number)
    content = json.loads(path.read_text("utf-8")) | {"deleted_rows": [1]}
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(DamagedSnapshotError, match=r"wrote it \(deleted_rows: "):
        store.newest("model")
    assert gc.isenabled()


def test_a_data_directory_may_move(spark: SparkSession, tmp_path: Path):
    """Prevents: snapshots that are lost with the name of the folder they were written to."""
    before = stored(spark.range(3), tmp_path / "old")
    shutil.move(tmp_path / "old", tmp_path / "new place")
    moved = newest(tmp_path / "new place")
    assert moved
    assert moved == before.model_copy(update={"folder": moved.folder})
    assert moved.folder.path.is_relative_to(tmp_path / "new place")
    assert moved.data_version == before.data_version
    assert spark.read.parquet(*(f"file://{path}" for path in moved.paths)).count() == 3


def test_the_sum_of_partitions_keeps_their_algorithm(store: SnapshotStore):
    """Prevents: hashes of an older algorithm that pass, once summed, for those of this one."""
    snapshot = commit(store, "a", "b")
    older = {"algorithm": "older"}
    parts = [
        part.model_copy(update={"fingerprint": part.fingerprint.model_copy(update=older)})
        for part in snapshot.parts
    ]
    assert Fingerprint(rows=2, hash_sum=2) == snapshot.fingerprint
    aged = snapshot.model_copy(update={"parts": tuple(parts)})
    assert aged.fingerprint == Fingerprint(rows=2, hash_sum=2, **older)
    mixed = snapshot.model_copy(update={"parts": (snapshot.parts[0], parts[1])})
    assert mixed.fingerprint.algorithm not in (snapshot.fingerprint.algorithm, "older")


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
