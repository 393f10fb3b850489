"""Deployments in a store of records: IDs, copies of a store, and several names in one store."""

import errno
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tableau_pipeline.core.deployment import NO_ID, JournalPlace
from tableau_pipeline.core.journal import History
from tableau_pipeline.core.journal_store import StoredJournal, all_histories, owner_here
from tableau_pipeline.errors import RefusedError, SettingError
from tableau_pipeline.objects.storage import LocalStorage
from tableau_pipeline_tests.core.test_journal import claim
from tableau_pipeline_tests.core.test_journal_store import (
    journal_in,
    numbers,
    objects,
    outputs_of,
    program,
    refreshes,
    root,
)
from tableau_pipeline_tests.refresh.support.proxies import Proxy

__all__ = ["root"]


def place(root: Path, name: str = "main") -> JournalPlace:
    """A store in a folder, as a new process opens it."""
    return JournalPlace(LocalStorage(root), name)


def file(root: Path, name: str = "main") -> Path:
    """The file that records a deployment."""
    return root / "@deployments" / f"{name}.json"


def test_an_id_is_made_with_the_first_record(root: Path):
    """Prevents: a deployment gets a wrong ID, or a process that only reads creates a folder."""
    ours, below = journal_in(LocalStorage(root)), journal_in(LocalStorage(root), "sales@Staging")
    assert (ours.instance, below.instance) == (NO_ID, f"{NO_ID}@Staging")
    assert ours.history() == History()
    assert (place(root).deployment(), place(root).recorded_keys()) == (None, set())
    assert place(root).keys_in("") == set()
    assert not root.exists()
    refreshes(ours, 1)
    made = place(root).deployment()
    assert made
    assert made.place == str(root)
    assert (ours.instance, below.instance) == (made.id, f"{made.id}@Staging")
    assert journal_in(LocalStorage(root), "other").instance == made.id
    assert place(root).established() == made
    # Another folder is another deployment. A folder whose files are gone is a new deployment.
    assert place(root.parent / "other").established().id != made.id
    shutil.rmtree(root)
    assert place(root).established().id != made.id


@pytest.mark.parametrize("make", [LocalStorage, objects], ids=["on a disk", "objects"])
def test_of_several_first_ones_one_makes_it(root: Path, make: Callable[[Path], Any]):
    """Prevents: two first refreshes make two IDs, and reject each other's data sources."""
    together = Barrier(8)

    def establish(_: int) -> str:
        storage = make(root)
        together.wait()
        return JournalPlace(storage).established().id

    with ThreadPoolExecutor(8) as executor:
        assert len({*executor.map(establish, range(8))}) == 1
    assert [each.name for each in root.rglob("*") if each.is_file()] == ["main.json"]


ESTABLISH = """
print("ready", flush=True)
input()
print(journal.place.established().id)
"""


@pytest.mark.slow
def test_of_several_first_processes_one_makes_it(root: Path):
    """Prevents: two first processes make two IDs, and reject each other's data sources."""
    processes = [program(ESTABLISH, root) for _ in range(4)]
    assert len({*outputs_of(processes)}) == 1


def test_a_copy_is_refused(root: Path, tmp_path: Path):
    """Prevents: a copied folder lets two deployments continue one history."""
    newest = refreshes(journal_in(LocalStorage(root)), 1)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    journal = journal_in(LocalStorage(copy))
    for use in (
        journal.history,
        lambda: journal.latest(newest),
        lambda: journal.create(claim(2), after=newest),
        lambda: journal.instance,
        place(copy).established,
        place(copy).recorded_keys,
    ):
        with pytest.raises(SettingError) as refused:
            use()
        message = str(refused.value)
        assert f"The records in {copy} were made in {root}" in message
        assert "`tableau-pipeline deployment --moved`" in message
        assert "`tableau-pipeline deployment --copied`" in message
    assert not [*copy.rglob("000000003.json")]
    # The original still works.
    assert refreshes(journal_in(LocalStorage(root)), 2).number == 4


def test_a_copy_that_was_moved_goes_on(root: Path, tmp_path: Path):
    """Prevents: a deployment must start from nothing after its host was replaced."""
    newest = refreshes(journal_in(LocalStorage(root)), 1)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    recorded = place(copy).recorded()
    assert recorded
    assert recorded == place(root).deployment()
    place(copy).keep(recorded)
    kept = place(copy).deployment()
    assert kept
    assert (kept.id, kept.place) == (recorded.id, str(copy))
    assert journal_in(LocalStorage(copy)).history() == newest
    assert refreshes(journal_in(LocalStorage(copy)), 2).number == 4


def test_a_copy_that_is_another_deployment_begins_anew(root: Path, tmp_path: Path):
    """Prevents: a test system writes over the data sources of production."""
    newest = refreshes(journal_in(LocalStorage(root)), 1)
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    place(copy).make_new()
    original, new = place(root).deployment(), place(copy).deployment()
    assert original
    assert new
    assert (new.id != original.id, new.place) == (True, str(copy))
    assert journal_in(LocalStorage(copy)).history() == History()
    assert place(copy).recorded_keys() == set()
    refreshes(journal_in(LocalStorage(copy)), 1, 2)
    assert journal_in(LocalStorage(root)).history() == newest
    # The copied records still count, so no refresh removes their snapshots.
    assert newest in all_histories(place(copy))


def test_a_folder_that_was_moved_is_the_same(root: Path):
    """Prevents: a renamed folder, or a folder behind another path, counts as a copy."""
    newest = refreshes(journal_in(LocalStorage(root)), 1)
    other = root.with_name("renamed")
    root.rename(other)
    assert journal_in(LocalStorage(other)).history() == newest
    link = root.with_name("link")
    link.symlink_to(other)
    assert journal_in(LocalStorage(link)).history() == newest
    # A restored copy has another inode number, so the recorded path alone identifies the folder.
    shutil.copytree(other, root)
    assert journal_in(LocalStorage(root)).history() == newest


def test_two_names_in_one_store(root: Path):
    """Prevents: two deployments with the same data folder share a history."""
    storage = LocalStorage(root)
    journals = [
        StoredJournal(JournalPlace(storage, name), "sales", owner_here("test"))
        for name in ("main", "staging", "a/b", "7")
    ]
    for number, journal in enumerate(journals, 1):
        assert journal.history() == History()
        refreshes(journal, *range(1, number + 1))
    assert len({journal.instance for journal in journals}) == 4
    assert [journal.history().refresh for journal in journals] == [1, 2, 3, 4]
    assert [len(numbers(journal)) for journal in journals] == [2, 4, 6, 8]
    for journal in journals:
        assert journal.place.recorded_keys() == {"sales"}


class Unconditional(Proxy):
    """A store behind a gateway that ignores If-None-Match."""

    def put(self, key: str, content: bytes) -> bool:
        self.behind.replace(key, content)
        return True


def test_a_store_without_conditional_writes_is_refused(root: Path):
    """Prevents: two refreshes both create one record in a store without conditional writes."""
    journal = journal_in(Unconditional(objects(root)))
    for _ in range(2):
        with pytest.raises(SettingError, match=r"\(If-None-Match\).* Use a store that has") as said:
            journal.create(claim(1), after=History())
        assert root.as_uri() in str(said.value)
    assert [each for each in root.rglob("*") if each.is_file()] == []


def test_a_disk_without_hard_links_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: on a disk without hard links, users see an error number without a remedy."""

    def without(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", without)
    with pytest.raises(SettingError, match=r"has no hard links.*PIPELINE_DATA_DIR") as refused:
        journal_in(LocalStorage(root)).create(claim(1), after=History())
    assert str(root) in str(refused.value)
    assert [each for each in root.rglob("*") if each.is_file()] == []


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"not JSON", b"\xff", b'{"format": 2, "id": "x", "place": "/"}'],
    ids=repr,
)
def test_a_damaged_file_is_refused_and_left_alone(root: Path, content: bytes):
    """Prevents: a damaged file makes a deployment lose its ID and all its data sources."""
    newest = refreshes(journal_in(LocalStorage(root)), 1)
    whole = file(root).read_bytes()
    file(root).write_bytes(content)
    journal = journal_in(LocalStorage(root))
    for use in (
        journal.history,
        lambda: journal.create(claim(2), after=newest),
        lambda: journal.instance,
    ):
        with pytest.raises(RefusedError, match=r"damaged.*newer release.*Restore it") as refused:
            use()
        assert str(file(root)) in str(refused.value)
    assert file(root).read_bytes() == content
    file(root).write_bytes(whole)
    assert journal.history() == newest


def test_a_file_that_is_gone_is_another_deployment(root: Path):
    """Prevents: records without an owner count as records of the next deployment."""
    refreshes(journal_in(LocalStorage(root)), 1)
    file(root).unlink()
    journal = journal_in(LocalStorage(root))
    assert journal.history() == History()
    assert refreshes(journal, 1).number == 2


def test_histories_of_all_deployments(root: Path):
    """Prevents: a refresh removes snapshots that another deployment of the store needs."""
    storage = objects(root)
    for name, refresh in (("main", 1), ("staging", 2), ("7", 3)):
        place = JournalPlace(storage, name)
        for key in ("sales", "sales@Staging/eu"):
            refreshes(StoredJournal(place, key, owner_here("test")), refresh)
    found = all_histories(JournalPlace(storage))
    assert sorted(history.refresh for history in found) == [1, 1, 2, 2, 3, 3]

    class Gone(Proxy):
        def read(self, key: str) -> None:
            """Act as if another process had removed the record since the listing."""

    with pytest.raises(RefusedError, match=r"000000002\.json was removed meanwhile"):
        all_histories(JournalPlace(Gone(storage)))  # ty: ignore


def test_folders_are_named_after_keys_and_projects(root: Path):
    """Prevents: two data sources share their records, or records are outside of their folder."""
    keys = [
        "a", "a/b", "a.b", "a%2Fb", "a@b", "a@b/c", "a/b@c", "ä b", "a@.", "a@..", "a@@", ".", "..",
    ]  # fmt: skip
    place = JournalPlace(LocalStorage(root))
    for number, key in enumerate(keys, 1):
        StoredJournal(place, key, owner_here("test")).create(claim(number), after=History())
    for number, key in enumerate(keys, 1):
        assert StoredJournal(place, key, owner_here("test")).history().refresh == number
    assert place.recorded_keys() == set(keys)
    # The root of a key is the text after its first "@".
    in_root = {"a", "a/b", "a.b", "a%2Fb", "ä b", ".", ".."}
    for storage in (LocalStorage(root), objects(root)):
        seen = JournalPlace(storage, _deployment=place.deployment())
        found = [seen.keys_in(name) for name in ("", "b", "b/c", "c", "@", "nowhere")]
        assert found == [in_root, {"a"}, {"a"}, {"a/b"}, {"a"}, set()]
    assert len([*root.glob("*/*/*/000000001.json")]) == len(keys)
