import gc
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tableau_pipeline.core.snapshot import Fingerprint, Snapshot
from tableau_pipeline.errors import DamagedSnapshotError
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.snapshots.store import LocalStorage, SnapshotStore
from tableau_pipeline_tests.snapshots.support.samples import newest, rows
from tableau_pipeline_tests.snapshots.support.samples import store as stored
from tableau_pipeline_tests.snapshots.support.versions import (
    CountingStorage,
    age,
    commit,
    manifest,
    models,
    written,
)


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
