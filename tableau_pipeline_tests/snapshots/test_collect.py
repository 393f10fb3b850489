import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableau_pipeline.core.snapshot import MANIFEST
from tableau_pipeline.snapshots import collect as module
from tableau_pipeline.snapshots.collect import collect
from tableau_pipeline.snapshots.store import newest, partition_folders
from tableau_pipeline_tests.snapshots.aged import FILE, parts, version, whole


def collected(root: Path, *named: Path) -> None:
    """Collect what is older than 14 days."""
    collect(root, ["model"], keep_days=14, named=lambda: named)


def committed(root: Path) -> set[Path]:
    return {manifest.parent for manifest in root.rglob(MANIFEST)}


def current(root: Path) -> list[Path]:
    return [snapshot.folder for snapshot in newest(root, "model")]


def test_replaced_unnamed_and_old_goes(tmp_path: Path):
    # Prevents: a disk full of snapshots, or the one gone that everybody reads.
    old, current_one = whole(tmp_path, 90), whole(tmp_path, 20)
    collected(tmp_path)
    assert committed(tmp_path) == {current_one}
    assert not old.exists()


def test_named_stays_however_old(tmp_path: Path):
    # Prevents: a full refresh of a data source that is refreshed once a quarter, every time.
    base, _, newest_one = whole(tmp_path, 90), whole(tmp_path, 80), whole(tmp_path, 70)
    collected(tmp_path, base)
    assert committed(tmp_path) == {base, newest_one}


def test_named_by_the_path_that_it_had_before_the_data_directory_moved(tmp_path: Path):
    # Prevents: a full refresh of everything after a move.
    base, newest_one = whole(tmp_path / "old", 90), whole(tmp_path / "old", 80)
    shutil.move(tmp_path / "old", tmp_path / "new")
    collected(tmp_path / "new", base)
    moved = {tmp_path / "new" / "model" / folder.name for folder in (base, newest_one)}
    assert committed(tmp_path / "new") == moved


@pytest.mark.parametrize(("replaced", "left"), [(13, True), (15, False)])
def test_who_reads_it_has_the_time_to_end(tmp_path: Path, replaced: float, left: bool):
    # Prevents: files gone below a run that loaded the model just before it was written anew.
    read = whole(tmp_path, 365)
    whole(tmp_path, replaced)
    collected(tmp_path)
    assert read.exists() == left


def test_each_partition_is_on_its_own(tmp_path: Path):
    # Prevents: a month gone because another one was written anew, or kept because another is named.
    first = parts(tmp_path, 90, ["jan", "feb", "mar", "a/b"])
    second = parts(tmp_path, 80, ["jan", "feb"])
    third = parts(tmp_path, 10, ["feb", "mar"])
    collected(tmp_path, first["feb"])
    kept = {first["feb"], first["mar"], first["a/b"], *second.values(), *third.values()}
    assert committed(tmp_path) == kept
    assert not first["jan"].exists()


def test_a_write_of_which_no_partition_is_left_goes_as_a_whole(tmp_path: Path):
    # Prevents: thousands of empty folders, which every look for the newest goes through.
    first = parts(tmp_path, 90, ["jan", "feb"])
    parts(tmp_path, 80, ["jan"])
    parts(tmp_path, 70, ["feb", "jan"])
    collected(tmp_path)
    assert len(list((tmp_path / "model").iterdir())) == 1
    assert not first["jan"].parent.exists()


def test_partitions_that_a_whole_write_replaced_do_not_come_back(tmp_path: Path):
    # Prevents: rows that were dropped long ago in the model again, because what hid them is gone.
    named = parts(tmp_path, 90, ["jan", "feb"])
    whole(tmp_path, 80)
    now = parts(tmp_path, 70, ["feb", "mar"])
    for still_named in ([named["jan"]], []):
        collected(tmp_path, *still_named)
        assert current(tmp_path) == list(now.values())
    assert committed(tmp_path) == set(now.values())


def test_what_a_killed_write_left_goes(tmp_path: Path):
    # Prevents: the files of killed runs for ever on the disk, or those of a running one gone.
    dead, alive = whole(tmp_path, 20, committed=False), whole(tmp_path, 1, committed=False)
    torn = parts(tmp_path, 30, ["jan"], uncommitted=["feb"])
    empty = version(tmp_path, 40)
    empty.mkdir()
    collected(tmp_path)
    assert not dead.exists()
    assert not empty.exists()
    assert alive.exists()
    assert {folder.name for folder in torn["jan"].parent.iterdir()} == {
        "_SUCCESS",
        "_partition=jan",
    }


def test_other_models_and_foreign_folders_are_left_alone(tmp_path: Path):
    # Prevents: a collection that goes beyond what it was asked for.
    others = [whole(tmp_path, days, asset_key="model/v-1") for days in (90, 80)]
    foreign = tmp_path / "model" / "v-old"
    foreign.mkdir()
    whole(tmp_path, 70)
    collected(tmp_path)
    assert set(others) < committed(tmp_path)
    assert foreign.exists()


def test_nobody_is_asked_when_nothing_is_old(tmp_path: Path):
    # Prevents: a question to every data source after each of many refreshes.
    whole(tmp_path, 90)
    whole(tmp_path, 1)
    collect(tmp_path, ["model", "nowhere"], keep_days=14, named=lambda: pytest.fail("asked"))


def test_two_at_once(tmp_path: Path):
    # Prevents: a failure because another data source's refresh removed the same snapshots; or
    # because a model is loaded meanwhile.
    for days in range(100, 40, -1):
        parts(tmp_path, days, ["jan", *(str(day) for day in range(days % 7))])
    before = current(tmp_path)
    with ThreadPoolExecutor(4) as executor:
        collecting = [executor.submit(collected, tmp_path) for _ in range(3)]
        while not all(each.done() for each in collecting):
            assert current(tmp_path) == before
        for each in collecting:
            each.result()
    assert committed(tmp_path) == set(before)


def test_a_write_may_vanish_while_it_is_looked_at(tmp_path: Path):
    # Prevents: a refresh that fails because another one just removed a snapshot that it ignores.
    folder = version(tmp_path, 90)

    def come_and_go() -> None:
        for _ in range(1_500):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(folder.parent)

    with ThreadPoolExecutor(1) as executor:
        churning = executor.submit(come_and_go)
        while not churning.done():
            assert partition_folders(folder) == []
        churning.result()


class KilledError(BaseException): ...


WRITES = st.lists(
    st.tuples(
        st.sampled_from(["whole", "parts", "dead"]),
        st.sets(st.sampled_from("abc"), min_size=1),
        st.booleans(),
    ),
    max_size=7,
)


@given(writes=WRITES, kill_after=st.integers(0, 6), last_days=st.sampled_from([1, 20]))
@settings(deadline=None, max_examples=150, derandomize=True)
def test_current_content_survives_whatever_was_written_and_whenever_it_is_killed(
    writes: list[tuple[str, set[str], bool]], kill_after: int, last_days: int
):
    # Prevents: a model that reads otherwise after a collection, a half of a snapshot, or a state
    # whose base is gone.
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        root, named = Path(folder).resolve(), set()
        for number, (kind, partitions, is_named) in enumerate(writes):
            days = last_days + (len(writes) - number - 1) * 10
            written = _written(root, kind, days, sorted(partitions))
            named |= written if is_named else set()
        before = current(root)

        def sound() -> None:
            assert current(root) == before
            assert named <= committed(root)
            for each in committed(root):
                assert (each / FILE.name).exists()

        patch.setattr(module.shutil, "rmtree", _torn(kill_after))
        try:
            collected(root, *named)
        except KilledError:
            sound()
        patch.undo()
        collected(root, *named)
        sound()
        left = committed(root)
        collected(root, *named)
        assert committed(root) == left
        if last_days == 20 and not named:
            assert left == set(before)


def _written(root: Path, kind: str, days: float, partitions: Iterable[str]) -> set[Path]:
    if kind == "parts":
        return set(parts(root, days, partitions).values())
    folder = whole(root, days, committed=kind == "whole")
    return {folder} if kind == "whole" else set()


def _torn(calls: int):
    """A removal that ends in the middle, after so many whole ones."""
    remove, left = shutil.rmtree, [calls]

    def torn(folder: Path) -> None:
        if left[0] == 0:
            for file in sorted(folder.rglob(FILE.name))[:1]:
                file.unlink()
            raise KilledError
        left[0] -= 1
        remove(folder)

    return torn
