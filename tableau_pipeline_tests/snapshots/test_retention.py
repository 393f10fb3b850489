import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableau_pipeline.errors import DamagedSnapshotError
from tableau_pipeline.snapshots.retention import collect, is_first
from tableau_pipeline.snapshots.store import LocalStorage, SnapshotStore
from tableau_pipeline_tests.snapshots.support import (
    CountingStorage,
    age,
    commit,
    manifest,
    models,
    rows,
    written,
)


def collected(store: SnapshotStore, *referenced: int) -> list[int]:
    """Collect what is older than 14 days; the numbers that went."""
    needed = {("model", number) for number in referenced}
    return [number for _, number in collect(store, keep_days=14, referenced=lambda: needed)]


def days_pass(store: SnapshotStore, days: float = 20) -> None:
    age(store.root, days)


def check_whole(store: SnapshotStore, models: Iterable[str] = ("model",)) -> None:
    for model in models:
        for number in store.numbers(model):
            found = store.version(model, number)
            assert found
            assert found.missing() == []


def files(store: SnapshotStore) -> set[str]:
    folder = store.folder("model").path
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")}


@pytest.mark.parametrize(("days", "left"), [(13, [1, 2]), (15, [2])])
def test_who_reads_it_has_the_time_to_end(store: SnapshotStore, days: float, left: list[int]):
    """Prevents: files gone below a run that loaded the model just before it was written again."""
    commit(store)
    days_pass(store, 365)
    commit(store)
    days_pass(store, days)
    collected(store)
    assert store.numbers("model") == left
    check_whole(store)


def test_every_model_is_looked_at(store: SnapshotStore):
    """Prevents: versions of models that feed no data source themselves, for ever on the disk."""
    models = ["area/raw", "area", "feed"]
    for model in models:
        for _ in range(2):
            commit(store, asset_key=model)
            days_pass(store)
    gone = collect(store, keep_days=14, referenced=lambda: {("feed", 1)})
    assert set(gone) == {("area/raw", 1), ("area", 1)}
    check_whole(store, models)


def test_what_a_killed_write_left_goes(store: SnapshotStore):
    """Prevents: the files of killed runs for ever on the disk, or those of a running one gone."""
    commit(store, "jan")
    (dead,) = written(store, ["jan"])
    empty = store.folder("model").path / store.new_folder("model")
    empty.mkdir()
    (never,) = written(store, [None], asset_key="never")
    torn = manifest(store, 1).with_name(f".{uuid4().hex}")
    torn.touch()
    days_pass(store)
    (alive,) = written(store, ["feb"])
    # Spark keeps what is not finished in folders of its own.
    slow = store.folder("model").path / store.new_folder("model")
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


def test_checksums_stay_with_their_files(store: SnapshotStore):
    """Prevents: Spark that no longer notices a damaged file, because its checksum was removed."""
    (part,) = commit(store).parts
    path = store.folder("model").path / part.files[0].name
    checksum = path.with_name(f".{path.name}.crc")
    checksum.touch()
    days_pass(store)
    collected(store)
    assert checksum.exists()


def test_foreign_folders_are_left_alone(store: SnapshotStore):
    """Prevents: a collection that goes beyond what is ours."""
    commit(store)
    foreign = store.folder("model").path / "v-old" / "notes.txt"
    foreign.parent.mkdir()
    foreign.touch()
    days_pass(store)
    commit(store)
    days_pass(store)
    collected(store)
    assert foreign.exists()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_everything_of_a_model_with_a_damaged_manifest_stays(store: SnapshotStore, number: int):
    """Prevents: files gone that a manifest names which cannot be read, or the others for ever."""
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
    """Prevents: requests for each of many models, after each of many data sources."""
    counting = CountingStorage(LocalStorage(tmp_path))
    store, models = SnapshotStore(counting), [f"model {number}" for number in range(20)]
    for model in models:
        for _ in range(4):
            commit(store, asset_key=model)
    age(tmp_path, 20)
    for model in models[:5]:
        commit(store, asset_key=model)
    counting.calls.clear()
    gone = collect(store, keep_days=14, referenced=set)
    assert set(gone) == {(model, number) for model in models for number in (1, 2, 3)}
    # Each manifest is read once; then those that were replaced go with their files and folders.
    assert counting.calls["list"] == 1
    assert counting.calls["read"] == 20 * 4 + 5
    counting.calls.clear()
    assert collect(store, keep_days=14, referenced=set) == []
    # Where the newest manifest names all old files, the others need not be read.
    assert counting.calls == {"put": 1, "list": 1, "read": 15 + 2 * 5, "delete": 1}


def test_only_the_first_step_of_a_run_collects(store: SnapshotStore):
    """Prevents: a listing of all snapshots after each data source of a run of many."""
    runs = ["one", "two", "one", "one"]
    with ThreadPoolExecutor(4) as executor:
        assert sum(executor.map(lambda run: is_first(store, run), runs)) == 2
    assert not is_first(store, "two")
    assert models(store) == set()
    days_pass(store, 0.9)
    collected(store)
    assert not is_first(store, "one")
    # A run that takes longer may collect once more.
    days_pass(store, 0.2)
    collected(store)
    assert [entry.key for entry in store.storage.list("@runs/")] == ["@runs/"]


def test_nobody_is_asked_when_nothing_is_old(store: SnapshotStore):
    """Prevents: a question to every data source after each of many refreshes."""
    commit(store)
    days_pass(store)
    commit(store)
    assert collect(store, keep_days=14, referenced=lambda: pytest.fail("asked")) == []
    empty = SnapshotStore(store.root / "nowhere")
    assert collect(empty, keep_days=14, referenced=lambda: pytest.fail("asked")) == []


def test_a_clock_that_is_ahead_removes_nothing(
    store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: snapshots that are young by the disk's clock, gone by that of one worker."""
    commit(store)
    commit(store)
    monkeypatch.setattr("time.time", lambda: 10.0**11)
    assert collected(store) == []


def test_two_at_once_and_a_writer(store: SnapshotStore):
    """Prevents: a failure, or a version that loses files, because others are at it as well."""
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
    """Prevents: a model that reads otherwise after a collection, or a base without its files."""
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
    """A removal that does not come to its end, after so many that did."""
    unlink, left = Path.unlink, [calls]

    def killed(path: Path, *, missing_ok: bool = False) -> None:
        if left[0] == 0:
            raise KilledError
        left[0] -= 1
        unlink(path, missing_ok=missing_ok)

    return killed
