"""Numbered records in a store: the writer of each number, crashes, and what readers see."""

import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableau_pipeline.core import journal as journal_module
from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.deployment import JournalPlace, folder_of
from tableau_pipeline.core.journal import FORMAT, KEPT, History, Owner, Record
from tableau_pipeline.core.journal_store import StoredJournal, all_histories, owner_here
from tableau_pipeline.errors import OvertakenError, RefusedError
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.storage import UNFINISHED, Entry, LocalStorage, ObjectStorage, Storage
from tableau_pipeline.objects.stores import StoreError
from tableau_pipeline.refresh.claim import HeldClaim
from tableau_pipeline_tests.core.test_journal import claim, closing, history_of, intent
from tableau_pipeline_tests.refresh.stateful.journals import MemoryStore
from tableau_pipeline_tests.refresh.support.proxies import At, Proxy
from tableau_pipeline_tests.refresh.support.states import checkpoint
from tableau_pipeline_tests.snapshots.support import CountingStorage

LOG = logging.getLogger(__name__)
MINUTE = 1 / (24 * 60)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of a store; the folder does not exist yet."""
    return tmp_path / "data" / "journal"


def objects(root: Path) -> ObjectStorage:
    """An object store in a folder; a test can put a proxy in front of the store."""
    root.mkdir(parents=True, exist_ok=True)
    return ObjectStorage(root.as_uri(), LocalCopies(root.parent / "copies", limit=10**6))


def journal_in(
    storage: Any, key: str = "sales", ask: Callable[[Owner], bool | None] = lambda _: None
) -> StoredJournal:
    """The journal of a data source, as a new process opens it."""
    return StoredJournal(JournalPlace(storage), key, owner_here("test"), ask)


def add(journal: StoredJournal, *records: Record) -> History:
    """Append records to a journal."""
    history = journal.history()
    for record in records:
        history = journal.append(lambda _, record=record: record, after=history)
    return history


def refreshes(journal: StoredJournal, *numbers: int, complete: bool = True) -> History:
    """Store the records of refreshes; only complete refreshes leave a checkpoint."""
    history = journal.history()
    for number in numbers:
        left = checkpoint(refresh=number) if complete else None
        for record in (claim(number), closing(number, left)):
            created = journal.create(record, after=history)
            assert created
            history = created
    return history


def file(journal: StoredJournal, number: int) -> str:
    """The key of a record in the store."""
    deployment = journal.place.deployment()
    assert deployment
    return f"{folder_of(deployment, journal.key)}/{number:09}.json"


def numbers(journal: StoredJournal) -> list[int]:
    """The numbers of all stored records."""
    folder = file(journal, 0).rpartition("/")[0]
    names = [entry.key for entry in journal.place.storage.list(f"{folder}/")]
    return sorted(int(Path(name).stem) for name in names if name.endswith(".json"))


# Which writer gets a number.


def test_what_one_process_stored_the_next_one_reads(storage: Storage):
    """Prevents: a refresh does not see what the previous refresh sent."""
    done = intent("first", outcome=Outcome.DONE)
    records = [claim(1), intent("first"), done, closing(1), claim(2), intent("second", 2)]
    history = History()
    for number, record in enumerate(records, 1):
        created = journal_in(storage).create(record, after=history)
        assert created == history.after(record)
        history = created
        assert history.number == number
        assert journal_in(storage).history() == history
    assert journal_in(storage).latest(history_of(*records[:2])) == history
    assert history.claim == claim(2).model_copy(update={"claimed_at": history.claim.claimed_at})
    assert [each.request_id for each in history.intents] == ["first", "second"]
    assert journal_in(storage, "other").history() == History()


def test_a_number_is_there_once(storage: Storage):
    """Prevents: two refreshes both believe that they hold the data source."""
    journal = journal_in(storage)
    first = journal.create(claim(1, "one"), after=History())
    assert first
    assert journal_in(storage).create(claim(1, "two"), after=History()) is None
    assert journal.history() == first
    assert journal.create(intent("first"), after=first)
    assert journal_in(storage).create(closing(1), after=first) is None
    assert numbers(journal) == [1, 2]


def test_threads_that_create_at_once(storage: Storage):
    """Prevents: a record is lost because several threads write at once."""
    together = Barrier(8)

    def create(name: str) -> list[int]:
        journal, history = journal_in(storage), History()
        together.wait()
        created = []
        for part in "abc":
            record = intent(name + part)
            history = journal.append(lambda _, record=record: record, after=history)
            created.append(history.number)
        return created

    with ThreadPoolExecutor(8) as executor:
        created = [*executor.map(create, map(str, range(8)))]
    assert sorted(number for each in created for number in each) == [*range(1, 25)]
    assert all(each == sorted(each) for each in created)
    journal = journal_in(storage)
    assert numbers(journal) == [*range(1, 25)]
    names = {f"{number}{part}" for number in range(8) for part in "abc"}
    assert {each.request_id for each in journal.history().intents} == names


# The program imports little, so that it starts fast.
PROGRAM = """
import itertools, os, resource, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from tableau_pipeline.core.journal import Intent
from tableau_pipeline.core.journal_store import script_journal
from tableau_pipeline.objects import storage

journal, argument = script_journal(Path(sys.argv[1]), "sales"), sys.argv[2]

def intent(name):
    return Intent(
        refresh=1, request_id=name, recorded_at=datetime.now(UTC), run_id="", mode=None, name="",
        project_id="", luid=None, target=None,
    )
"""
CREATE = """
print("ready", flush=True)
input()
history = journal.history()
for number in range(5):
    record = intent(f"{argument} {number}")
    history = journal.append(lambda _: record, after=history)
    print(history.number, flush=True)
"""


def program(code: str, root: Path, argument: int = 0) -> subprocess.Popen[str]:
    """Start a process that works with the journal in a folder."""
    command = [sys.executable, "-c", PROGRAM + code, str(root), str(argument)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def outputs_of(processes: Sequence[subprocess.Popen[str]]) -> list[str]:
    """Wait until all processes are ready, let them continue together, and return their output."""
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    return [process.communicate(timeout=60)[0] for process in processes]


@pytest.mark.slow
def test_processes_that_create_at_once(root: Path):
    """Prevents: a record is lost because several new processes write at once."""
    processes = [program(CREATE, root, name) for name in range(8)]
    said = [each.split() for each in outputs_of(processes)]
    assert sorted(int(number) for each in said for number in each) == [*range(1, 41)]
    names = {f"{name} {number}" for name in range(8) for number in range(5)}
    history = journal_in(LocalStorage(root)).history()
    assert {each.request_id for each in history.intents} == names
    assert len([*root.iterdir()]) == 2, "one deployment, and the folder of deployments"


STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["claim", "close", "refuse", "send", "look", "list", "others"]),
    ),
    max_size=60,
)


@pytest.mark.slow
@settings(deadline=None)
@given(steps=STEPS)
def test_writers_with_older_knowledge(steps: list[tuple[int, str]]):
    """Prevents: a writer that missed a record writes the next record, or readers disagree."""
    store: Any = MemoryStore(lambda: datetime.now(UTC), Random(0))
    known, truth = [History()] * 4, History()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_module, "KEPT", 2)
        for writer, step in steps:
            journal, mine = journal_in(store), known[writer]
            if step in ("look", "list"):
                known[writer] = journal.latest(mine) if step == "look" else journal.history()
                assert known[writer] == truth
                continue
            if step == "others":
                # Other processes, which know all records, do two refreshes, and remove old records.
                truth = refreshes(journal, truth.refresh + 1, truth.refresh + 2)
                continue
            number = mine.claim.refresh if mine.claim else 0
            before = dict(store.objects)
            created = journal.create(a_record(step, mine, number), after=mine)
            assert (created is not None) == (mine == truth)
            if created:
                known[writer] = truth = created
            else:
                assert store.objects == before
        assert journal_in(store).history() == truth
        assert [*map(journal_in(store).latest, known)] == [truth] * 4


def a_record(step: str, history: History, number: int) -> Record:
    match step:
        case "claim":
            return claim(history.refresh + 1)
        case "send":
            return intent("first", number)
        case "close":
            return closing(number, checkpoint(refresh=number))
    return closing(number)


# Processes that are killed.


def test_on_disk_before_it_counts(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: after a loss of power, a record has its name but no content."""
    journal, seen = journal_in(LocalStorage(root)), []
    journal.place.established()
    path = root / file(journal, 1)

    def watched(descriptor: int) -> None:
        seen.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), path.exists()))

    monkeypatch.setattr(os, "fsync", watched)
    assert journal.create(claim(1), after=History())
    assert seen == [(False, False), (True, True)]


RECORD_FOR_EVER = """
resource.setrlimit(resource.RLIMIT_FSIZE, (int(argument), int(argument)))
for number in itertools.count():
    record = intent(str(number))
    journal.append(lambda _: record, after=journal.history())
    print(number, flush=True)
"""


@pytest.mark.parametrize(("size", "killed_after"), [(20_000, None), (10**9, 7)])
@pytest.mark.slow
def test_cut_off_while_it_writes(root: Path, size: int, killed_after: int | None):
    """Prevents: a killed process leaves half a record, or loses the record of a sent request."""
    with program(RECORD_FOR_EVER, root, size) as process:
        assert process.stdout
        heard = [*islice(process.stdout, killed_after)]
        process.kill()
        heard += process.stdout
    journal = journal_in(LocalStorage(root))
    sent = [int(each.request_id) for each in journal.history().intents]
    assert sorted(sent) == [*range(len(sent))]
    assert numbers(journal) == [*range(1, len(sent) + 1)]
    # The process may have stored one more record than it could print.
    assert len(heard) <= len(sent) <= len(heard) + 1
    assert len(heard) >= 7


KILLED_AT_EACH_LINE = """
journal.place.established()

def create_and_die(lines):
    def watch(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename == storage.__file__ and event == "line":
            lines -= 1
            if lines < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return watch

    sys.settrace(watch)
    journal.create(intent(str(lines)), after=before)
    os._exit(0)

for lines in range(1000):
    before = journal.history()
    if (child := os.fork()) == 0:
        create_and_die(lines)
    if os.waitpid(child, 0)[1] == 0:
        break
    print(journal.history().number - before.number, flush=True)
"""


@pytest.mark.slow
def test_killed_between_any_two_steps(root: Path):
    """Prevents: a process that is killed at some line leaves half a record or a gap."""
    output, _ = program(KILLED_AT_EACH_LINE, root).communicate(timeout=100)
    left = [*map(int, output.split())]
    assert left == sorted(left)
    assert left.count(0) >= 8
    assert left.count(1) >= 5
    journal = journal_in(LocalStorage(root))
    # The last child process was not killed.
    assert numbers(journal) == [*range(1, left.count(1) + 2)]
    others = [each.name for each in root.rglob("*") if each.is_file() and each.suffix != ".json"]
    assert [name for name in others if not UNFINISHED.fullmatch(name)] == []


# What readers see.


class Late(Proxy):
    """A store whose listings lack some records."""

    def __init__(self, behind: Storage, *lacks: int) -> None:
        super().__init__(behind)
        self.lacks = tuple(f"{number:09}.json" for number in lacks)

    def list(self, prefix: str) -> Iterator[Entry]:
        return (each for each in self.behind.list(prefix) if not each.key.endswith(self.lacks))


@pytest.mark.parametrize(
    ("lacks", "seen"), [((4, 5), 3), ((1, 2, 3, 4, 5), 0), ((2,), 5), ((1, 3, 5), 4)]
)
def test_a_listing_that_is_late(root: Path, lacks: tuple[int, ...], seen: int):
    """Prevents: if listings are late, a record replaces a newer record, or a refresh fails."""
    storage = objects(root)
    newest = add(journal_in(storage), claim(1), intent("a"), closing(1), claim(2), intent("b"))
    journal = journal_in(Late(storage, *lacks))
    history = journal.history()
    assert history.number == seen
    if seen < 5:
        assert journal.create(claim(9), after=history) is None
    assert journal.latest(history) == newest
    assert journal.append(lambda _: closing(2), after=history) == newest.after(closing(2))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make journals keep only a few records."""
    monkeypatch.setattr(journal_module, "KEPT", 4)


@pytest.mark.usefixtures("few")
def test_a_sleeper_whose_number_is_free_again(storage: Storage):
    """Prevents: a process that slept for long uses a removed number again and takes a claim."""
    journal, asleep = journal_in(storage), [History()]
    for number in range(1, 13):
        asleep.append(add(journal, claim(number)))
        asleep.append(add(journal, closing(number, checkpoint(refresh=number))))
    newest = asleep.pop()
    left = numbers(journal)
    assert left == [1, *range(newest.floor, 25)]
    assert len(left) <= 9
    for history in asleep:
        sleeper = journal_in(storage)
        assert sleeper.create(claim(99), after=history) is None
        assert sleeper.latest(history) == newest
        if history.claim:
            held = HeldClaim(history.claim, history, sleeper)
            for use in (held.check_fence, lambda held=held: held.append(intent("late"))):
                with pytest.raises(OvertakenError):
                    use()
    assert numbers(journal) == left
    assert journal.history() == newest


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("lacks", [(), range(20, 99), range(1, 99)], ids=["none", "newest", "all"])
def test_a_sleeper_whose_listings_are_late(root: Path, lacks: Sequence[int]):
    """Prevents: a process that slept for long takes a claim because a listing is late."""
    storage = objects(root)
    newest = refreshes(journal_in(storage), *range(1, 13))
    for asleep in (History(), History().after(claim(1))):
        sleeper = journal_in(Late(storage, *lacks))
        assert sleeper.create(claim(99), after=asleep) is None
    assert journal_in(storage).history() == newest


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 6))
def test_records_are_removed_while_one_reads_on(root: Path, nth: int, when: str):
    """Prevents: a reader stops at an old record because the next record was removed."""
    storage = objects(root)
    start = refreshes(journal_in(storage), 1)
    before = refreshes(journal_in(storage), 2)

    def others_go_on() -> None:
        refreshes(journal_in(storage), *range(3, 20))

    reader = journal_in(storage)
    reader.place.deployment()
    reader.place.storage = At(storage, "read", others_go_on, nth=nth, when=when)  # ty: ignore
    found = reader.latest(start)
    # The found history was the newest at some moment of the reading.
    assert found in (before, journal_in(storage).history())
    assert reader.latest(found) == journal_in(storage).history()


@pytest.mark.usefixtures("few")
def test_a_listing_that_is_late_after_a_removal(root: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a refresh first asks for each removed record, which takes a minute."""
    monkeypatch.setattr(journal_module, "KEPT", 40)
    storage = objects(root)
    newest = History()
    while newest.floor == 1:
        newest = refreshes(journal_in(storage), newest.refresh + 1)
    late = Late(storage, newest.number)
    assert counted(late, StoredJournal.history)["read"] <= newest.floor + 5
    journal = journal_in(late)
    assert journal.latest(journal.history()) == newest


class Keeping(Proxy):
    """A store in which every deletion fails."""

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name == "delete":
            raise StoreError("Deleting failed: the store does not answer")


@pytest.mark.usefixtures("few")
def test_what_cannot_be_removed_goes_the_next_time(root: Path):
    """Prevents: a refresh fails after its publish because an old record cannot be removed."""
    storage = objects(root)
    journal = journal_in(storage)
    journal.place.established()
    journal.place.storage = Keeping(storage)  # ty: ignore
    history = refreshes(journal, *range(1, 10))
    assert history.floor > 1
    assert numbers(journal) == [*range(1, 19)]
    newest = refreshes(journal_in(storage), *range(10, 13))
    assert numbers(journal) == [1, *range(newest.floor, 25)]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("lost", [(23,), (20,), (20, 21, 22, 23)])
def test_a_record_that_is_missing(storage: Storage, lost: tuple[int, ...]):
    """Prevents: a missing record goes unnoticed, or a partial backup counts as a new journal."""
    journal = journal_in(storage)
    newest = refreshes(journal, *range(1, 13))
    assert newest.floor <= 20
    for number in lost:
        storage.delete(file(journal, number))
    with pytest.raises(RefusedError) as refused:
        journal_in(storage).history()
    message = str(refused.value)
    assert f"{journal.place.where}/{file(journal, min(lost))} is missing" in message
    assert "Restore the folder from a backup. Or move its records away" in message
    # Refreshes remove the records before `floor`, the first number to keep, so these may be
    # missing.
    for number in lost:
        storage.put(file(journal, number), b"restored")
    storage.delete(file(journal, newest.floor - 1))
    assert journal_in(storage).history() == newest


class Torn(Proxy):
    """A store that lists one object too many."""

    def list(self, prefix: str) -> Iterator[Entry]:
        entries = [*self.behind.list(prefix)]
        yield from entries
        yield Entry(max(each.key for each in entries).replace("2.json", "3.json"), 0.0)


def test_a_newest_record_that_is_listed_and_missing(root: Path):
    """Prevents: a reader sees a history that ends before its newest record."""
    storage = objects(root)
    refreshes(journal_in(storage), 1)
    with pytest.raises(RefusedError, match=r"000000003\.json is missing"):
        journal_in(Torn(storage)).history()


UNREADABLE = {
    "later": ({"format": FORMAT + 1, "release": "9.8.7", "lease": 60}, "release 9.8.7 .* wrote it"),
    "earlier": ({"format": FORMAT - 1}, "an earlier release .* move its records away"),
    "damaged": ({}, "it is damaged, or not a record .* Restore the folder from a backup"),
}


@pytest.mark.parametrize("cause", UNREADABLE)
def test_a_record_that_this_release_cannot_read(storage: Storage, cause: str):
    """Prevents: a refresh overlooks or overwrites a record that it cannot read."""
    content, words = UNREADABLE[cause]
    journal = journal_in(storage)
    known = refreshes(journal, 1)
    place = f"{journal.place.where}/{file(journal, 3)}"
    storage.put(file(journal, 3), json.dumps(content).encode())
    for use in (
        journal.history,
        lambda: journal.latest(known),
        lambda: journal.append(lambda _: claim(2), after=known),
        lambda: all_histories(journal.place),
    ):
        with pytest.raises(RefusedError, match=words) as refused:
            use()
        assert f"{place} cannot be read: " in str(refused.value)
    assert storage.read(file(journal, 3)) == json.dumps(content).encode()
    assert numbers(journal) == [1, 2, 3]


def counted(storage: Any, use: Callable[[StoredJournal], object]) -> dict[str, int]:
    """How many requests of each kind a use of the journal sends to the store."""
    counting = CountingStorage(storage)
    journal = journal_in(counting)
    journal.place.deployment()
    counting.calls.clear()
    use(journal)
    return dict(counting.calls)


@pytest.mark.parametrize("complete", [True, False], ids=["completed", "refused"])
@pytest.mark.parametrize("times", [5, pytest.param(5000, marks=pytest.mark.slow)])
def test_ten_thousand_records_cost_what_ten_cost(times: int, complete: bool):
    """Prevents: after a year of refreshes, each takes longer, or the checkpoint is forgotten."""
    store: Any = MemoryStore(lambda: datetime.now(UTC), Random(0))
    left = refreshes(journal_in(store), 1).checkpoint
    newest = refreshes(journal_in(store), *range(2, times + 1), complete=complete)
    assert newest.number == 2 * times
    for use, calls in {
        StoredJournal.history: {"list": 1, "read": 1},
        lambda journal: journal.latest(newest): {"read": 2},
        lambda journal: journal.create(claim(times + 1), after=newest): {"put": 1, "read": 1},
        lambda journal: journal.latest(newest): {"read": 3},
    }.items():
        assert counted(store, use) == calls
    found = journal_in(store).history().checkpoint
    assert found == (newest.checkpoint if complete else left)
    assert len(store.objects) <= 1.5 * KEPT + 5
    assert max(len(content) for content, _ in store.objects.values()) < 4000
