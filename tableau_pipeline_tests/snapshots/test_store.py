"""Versions in a store, on a disk or as objects, and the collection of old versions."""

import gc
import json
import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tableau_pipeline.core.snapshot import Fingerprint, Snapshot
from tableau_pipeline.errors import DamagedSnapshotError
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.objects.storage import LocalStorage, Storage
from tableau_pipeline.snapshots.retention import collect, is_first
from tableau_pipeline.snapshots.version_store import SnapshotStore
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
    """Prevents: a version is read while its files are still being written."""
    written(store, [None])
    assert store.newest("model") is None
    first = commit(store)
    written(store, [None])
    assert store.newest("model") == first
    assert (first.number, store.numbers("model")) == (1, [1])


def test_the_number_decides_and_no_clock(store: SnapshotStore):
    """Prevents: a version of a worker whose clock is ahead hides later versions."""
    ahead = commit(store)
    late = ahead.model_copy(update={"created_at": ahead.created_at + timedelta(minutes=3)})
    manifest(store, 1).write_text(late.manifest(), "utf-8")
    age(manifest(store, 1).parent, -1)
    second = commit(store)
    assert store.newest("model") == second
    assert [store.version("model", number) for number in (1, 2, 3)] == [late, second, None]


def test_a_version_is_never_overwritten(store: SnapshotStore):
    """Prevents: two writers commit the same number, and one version is silently lost."""
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


def test_a_year_of_hours_is_one_file(store: SnapshotStore):
    """Prevents: a look at a model's partitions opens a file or a folder for each partition."""
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
    # A commit needs one more list and one more read.
    commit(SnapshotStore(counting), "new")
    assert counting.calls == {"list": 2, "read": 2, "put": 2}
    assert manifest(store, 2).stat().st_size < 400 * 8_760


@pytest.mark.parametrize(
    "below", ["sales/eu", "sales/versions", "sales/data", "sales/@versions", "sales/@data", "sal"]
)
def test_a_model_below_another_is_none_of_its_versions(store: SnapshotStore, below: str):
    """Prevents: a model passes for a version or for files of another model."""
    commit(store, asset_key="sales", rows=1)
    commit(store, asset_key=below, rows=2)
    for key, expected in (("sales", 1), (below, 2)):
        found = store.newest(key)
        assert found
        assert (found.asset_key, found.number) == (key, 1)
        assert rows(found) == {None: expected}
    assert models(store) == {"sales", below}


def test_folders_are_named_after_models(store: SnapshotStore):
    """Prevents: models share a folder, or a model is stored outside of the data directory."""
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
    """Prevents: rows appear twice after a model becomes partitioned or unpartitioned."""
    commit(store, "jan", "feb")
    assert rows(commit(store, rows=3)) == {None: 3}
    assert rows(commit(store, "feb")) == {"feb": 1}


def test_parts_of_other_columns_say_so(store: SnapshotStore):
    """Prevents: a new column is silently NULL or missing in earlier partitions."""
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
    """Prevents: a store ignores an unknown field that changes the meaning of a manifest."""
    path = manifest(store, commit(store).number)
    content = json.loads(path.read_text("utf-8")) | {"deleted_rows": [1]}
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(DamagedSnapshotError, match=r"wrote it \(deleted_rows: "):
        store.newest("model")
    assert gc.isenabled()


def test_a_data_directory_may_move(spark: SparkSession, tmp_path: Path):
    """Prevents: snapshots are lost when their data directory moves."""
    before = stored(spark.range(3), tmp_path / "old")
    shutil.move(tmp_path / "old", tmp_path / "new place")
    moved = newest(tmp_path / "new place")
    assert moved == before.model_copy(update={"folder": moved.folder})
    assert moved.folder.path.is_relative_to(tmp_path / "new place")
    assert moved.data_version == before.data_version
    assert spark.read.parquet(*(f"file://{path}" for path in moved.paths)).count() == 3


def test_the_sum_of_partitions_keeps_their_algorithm(store: SnapshotStore):
    """Prevents: sums of hashes of an older algorithm pass for sums of the current algorithm."""
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


def keys(storage: Storage, prefix: str = "") -> set[str]:
    """Return the keys of files, without the keys of folders."""
    return {entry.key for entry in storage.list(prefix) if not entry.is_folder}


def test_what_exists_is_never_replaced(storage: Storage):
    """Prevents: a version changes after a run has read it."""
    assert storage.put("a/1", b"first")
    assert not storage.put("a/1", b"second")
    assert storage.read("a/1") == b"first"
    assert keys(storage) == {"a/1"}


def test_one_of_many_wins(storage: Storage):
    """Prevents: two writers both believe that they have committed a number."""
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
    """Prevents: a listing of one model includes entries of another model, or misses entries."""
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
    """Prevents: two collections both believe that they have removed a key."""
    storage.put("a/b/1", b"")
    assert [storage.delete("a/b/1") for _ in range(2)] == [True, False]
    assert storage.read("a/b/1") is None
    assert keys(storage) == set()
    assert storage.put("a/b/1", b"again")


def test_a_folder_goes_once_it_is_empty(tmp_path: Path):
    """Prevents: empty folders stay on the disk for ever, or a full folder is removed."""
    storage = LocalStorage(tmp_path)
    storage.put("a/b/1", b"")
    assert {entry.key for entry in storage.list("a/")} == {"a/", "a/b/", "a/b/1"}
    assert not storage.delete("a/b/")
    assert [storage.delete(key) for key in ("a/b/1", "a/b/", "a/")] == [True] * 3
    assert [*storage.list("")] == []


def test_a_network_file_system_repeats_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a network file system repeats a call, and a successful write counts as failed."""
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
    """Prevents: code reads or removes manifests as files, which an object store does not have."""
    store = SnapshotStore(storage)
    commit(store, "jan", "feb")
    last = commit(store, "feb", rows=2)
    assert rows(store.newest("model")) == {"feb": 2, "jan": 1}
    assert collect(store, keep_days=-1, referenced=()) == [("model", 1)]
    assert (store.numbers("model"), store.newest("model")) == ([2], last)
    # One manifest and the files of two partitions remain.
    assert len(keys(storage)) == 3


def collected(store: SnapshotStore, *referenced: int) -> list[int]:
    """Collect versions older than 14 days, and return the numbers of the removed versions."""
    needed = {("model", number) for number in referenced}
    return [number for _, number in collect(store, keep_days=14, referenced=needed)]


def days_pass(store: SnapshotStore, days: float = 20) -> None:
    age(store.root, days)


def check_whole(store: SnapshotStore, models: Iterable[str] = ("model",)) -> None:
    for model in models:
        versions = [store.version(model, number) for number in store.numbers(model)]
        assert [found and found.missing() for found in versions] == [[]] * len(versions)


def files(store: SnapshotStore) -> set[str]:
    folder = store.folder("model").path
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}


@pytest.mark.parametrize(("days", "left"), [(13, [1, 2]), (15, [2])])
def test_who_reads_it_has_the_time_to_end(store: SnapshotStore, days: float, left: list[int]):
    """Prevents: a collection deletes the files of a version that a run has just loaded."""
    commit(store)
    days_pass(store, 365)
    commit(store)
    days_pass(store, days)
    collected(store)
    assert store.numbers("model") == left
    check_whole(store)


def test_every_model_is_looked_at(store: SnapshotStore):
    """Prevents: old versions of models that no data source publishes stay for ever."""
    models = ["area/raw", "area", "feed"]
    for model in models:
        for _ in range(2):
            commit(store, asset_key=model)
            days_pass(store)
    gone = collect(store, keep_days=14, referenced={("feed", 1)})
    assert set(gone) == {("area/raw", 1), ("area", 1)}
    check_whole(store, models)


def test_what_a_killed_write_left_goes(store: SnapshotStore):
    """Prevents: files of killed runs stay for ever, or a collection deletes files in use."""
    commit(store, "jan")
    (dead,) = written(store, ["jan"])
    empty = store.folder("model").path / store.new_folder()
    empty.mkdir()
    (never,) = written(store, [None], asset_key="never")
    torn = manifest(store, 1).with_name(f".{uuid4().hex}")
    torn.touch()
    days_pass(store)
    (alive,) = written(store, ["feb"])
    # Spark still writes to this folder, in `_temporary`, so the old file in it must stay.
    slow = store.folder("model").path / store.new_folder()
    (slow / "_temporary" / "0").mkdir(parents=True)
    (slow / "old").touch()
    os.utime(slow / "old", (0, 0))
    (slow / "_temporary" / "0" / "part").touch()
    assert collected(store) == []
    folder = store.folder("model").path
    assert not (folder / dead.files[0].name).exists()
    assert not empty.exists()
    assert not torn.exists()
    assert not (store.folder("never").path / never.files[0].name).exists()
    assert (folder / alive.files[0].name).exists()
    assert (slow / "old").exists()
    check_whole(store)


def test_what_is_not_expired_or_not_ours_stays(store: SnapshotStore):
    """Prevents: a collection deletes foreign files, or a checksum that Spark still needs."""
    commit(store)
    foreign = store.folder("model").path / "v-old" / "notes.txt"
    foreign.parent.mkdir()
    foreign.touch()
    days_pass(store)
    (part,) = commit(store).parts
    path = store.folder("model").path / part.files[0].name
    checksum = path.with_name(f".{path.name}.crc")
    checksum.touch()
    days_pass(store)
    collected(store)
    assert foreign.exists()
    assert checksum.exists()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_everything_of_a_model_with_a_damaged_manifest_stays(store: SnapshotStore, number: int):
    """Prevents: a collection deletes files that a damaged manifest names, or skips other models."""
    for model in ("model", "other"):
        for _ in range(3):
            commit(store, asset_key=model)
            days_pass(store)
    (dead,) = written(store, ["dead"])
    days_pass(store)
    damaged = manifest(store, number)
    damaged.write_bytes(damaged.read_bytes()[:-20])
    before = files(store)
    with pytest.raises(DamagedSnapshotError) as error:
        collected(store)
    assert str(error.value).startswith(
        f'Nothing was removed of the model "model". Version {number} of the model "model" cannot '
        f"be read: {damaged} "
    )
    assert (files(store), store.numbers("model")) == (before, [1, 2, 3])
    assert dead.files[0].name in before
    assert store.numbers("other") == [3]
    damaged.unlink()
    collected(store)
    assert store.numbers("model") == [max({1, 2, 3} - {number})]


def test_one_listing_is_enough(tmp_path: Path):
    """Prevents: a collection of many models sends several requests for each model."""
    counting = CountingStorage(LocalStorage(tmp_path))
    store, models = SnapshotStore(counting), [f"model {number}" for number in range(20)]
    for model in models:
        for _ in range(4):
            commit(store, asset_key=model)
    age(tmp_path, 20)
    for model in models[:5]:
        commit(store, asset_key=model)
    counting.calls.clear()
    gone = collect(store, keep_days=14, referenced=())
    assert set(gone) == {(model, number) for model in models for number in (1, 2, 3)}
    # The collection reads each manifest once, and removes replaced versions with their folders.
    assert counting.calls["list"] == 1
    assert counting.calls["read"] == 20 * 4 + 5
    counting.calls.clear()
    assert collect(store, keep_days=14, referenced=()) == []
    # If the newest manifest names all old files, the collection skips the other manifests.
    assert counting.calls == {"put": 1, "list": 1, "read": 15 + 2 * 5, "delete": 1}


def test_the_first_step_of_a_run(storage: Storage):
    """Prevents: in an object store, each step of a run counts as the first step."""
    store = SnapshotStore(storage)
    assert [is_first(store, run) for run in ("one", "one", "two")] == [True, False, True]


def test_only_the_first_step_of_a_run_collects(store: SnapshotStore):
    """Prevents: a run of many data sources lists all snapshots after each data source."""
    runs = ["one", "two", "one", "one"]
    with ThreadPoolExecutor(4) as executor:
        assert sum(executor.map(lambda run: is_first(store, run), runs)) == 2
    assert not is_first(store, "two")
    assert models(store) == set()
    days_pass(store, 0.9)
    collected(store)
    assert not is_first(store, "one")
    # A run that takes more than a day may collect again.
    days_pass(store, 0.2)
    collected(store)
    assert [entry.key for entry in store.storage.list("@runs/")] == ["@runs/"]


def test_a_clock_that_is_ahead_removes_nothing(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a worker whose clock is ahead deletes snapshots that are young."""
    commit(store)
    commit(store)
    monkeypatch.setattr("time.time", lambda: 10.0**11)
    assert collected(store) == []


def test_two_at_once_and_a_writer(store: SnapshotStore):
    """Prevents: simultaneous collections and writes fail, or a version loses files."""
    for number in range(20):
        commit(store, "jan", *(str(day) for day in range(number % 7)))
        days_pass(store, 2)
    with ThreadPoolExecutor(4) as executor:
        collecting = [executor.submit(collected, store) for _ in range(3)]
        for number in range(30):
            commit(store, f"more {number}")
        for each in collecting:
            each.result()
    assert store.numbers("model")[-1] == 50
    check_whole(store)
    last = rows(store.newest("model"))
    assert {"jan", *(f"more {number}" for number in range(30))} <= set(last)


class KilledError(BaseException): ...


WRITES = st.lists(
    st.tuples(
        st.sampled_from(["whole", "parts", "dead"]),
        st.sets(st.sampled_from("abc"), min_size=1),
        st.booleans(),
    ),
    max_size=7,
)


@given(writes=WRITES, kill_after=st.integers(0, 9), last_days=st.sampled_from([1, 20]))
@settings(max_examples=100, derandomize=True)
@pytest.mark.slow
def test_every_version_is_whole_whenever_it_is_killed(
    writes: list[tuple[str, set[str], bool]], kill_after: int, last_days: int
):
    """Prevents: a killed collection changes the newest version, or deletes files in use."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        store, referenced = SnapshotStore(Path(folder)), []
        for kind, partitions, is_referenced in writes:
            days_pass(store, 10)
            if kind == "dead":
                written(store, sorted(partitions))
                continue
            version = commit(store, *(sorted(partitions) if kind == "parts" else ()))
            referenced += [version.number] if is_referenced else []
        days_pass(store, last_days)
        before = store.newest("model")

        def sound() -> None:
            assert store.newest("model") == before
            assert set(referenced) <= set(store.numbers("model"))
            check_whole(store)

        patch.setattr(Path, "unlink", _killed(kill_after))
        try:
            collected(store, *referenced)
        except KilledError:
            patch.undo()
            sound()
        patch.undo()
        collected(store, *referenced)
        sound()
        assert collected(store, *referenced) == []
        if last_days == 20:
            assert files(store) == store.files("model")
            assert set(store.numbers("model")) == {
                *referenced,
                *([before.number] if before else []),
            }


def _killed(calls: int):
    """Return a function that removes `calls` files, and then raises KilledError."""
    unlink, left = Path.unlink, [calls]

    def killed(path: Path, *, missing_ok: bool = False) -> None:
        if left[0] == 0:
            raise KilledError
        left[0] -= 1
        unlink(path, missing_ok=missing_ok)

    return killed
