import json
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from tableau_pipeline.core.checkpoint import Intent, Outcome, PublishMode
from tableau_pipeline.core.file_journal import FileJournal
from tableau_pipeline.errors import RefusedError
from tableau_pipeline_tests.refresh.states import state


def intent(name: str) -> Intent:
    return Intent(
        request_id=name,
        run_id="test",
        mode=PublishMode.REPLACE,
        target=state(),
        payload=Path("extract.hyper"),
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a journal, in a folder that is not there yet."""
    return tmp_path / "journals" / "sales.json"


def test_what_one_process_kept_the_next_one_reads(path: Path):
    # Prevents: a refresh that does not know what the one before it sent.
    first, second = intent("first"), intent("second")
    FileJournal(path).record(first)
    FileJournal(path).record(second)
    settled = first.model_copy(update={"outcome": Outcome.DONE})
    FileJournal(path).record(settled)
    assert list(FileJournal(path).intents()) == [settled, second]
    assert FileJournal(path).state() is None
    FileJournal(path).keep(state())
    assert FileJournal(path).state() == state()
    assert list(FileJournal(path).intents()) == []
    FileJournal(path).record(second)
    assert FileJournal(path).state() == state()


def test_why_there_is_no_state(path: Path):
    # Prevents: "the journal is empty" said of one that tells of refreshes cut off.
    assert FileJournal(path).why_no_state() == "the journal is empty"
    FileJournal(path).record(intent("first"))
    assert "no successful refresh" in FileJournal(path).why_no_state()


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b'{"format": 1, "state": null', b"\xff\x00", b"not JSON"],
    ids=repr,
)
def test_what_is_no_journal_is_refused_and_left_alone(path: Path, content: bytes):
    # Prevents: a damaged journal that passes for a first refresh, or somebody's file overwritten.
    path.parent.mkdir()
    path.write_bytes(content)
    journal = FileJournal(path)
    for use in (journal.state, journal.intents, lambda: journal.record(intent("first"))):
        with pytest.raises(RefusedError) as refused:
            use()
        assert str(path) in str(refused.value)
        assert "move it away" in str(refused.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize("change", [{"format": 2}, {"cursor": 7}, {"state": {"format": 9}}])
def test_a_journal_of_another_version_is_refused(path: Path, change: dict):
    # Prevents: a field of a later version, which changes the meaning, is overlooked.
    FileJournal(path).keep(state())
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), encoding="utf-8")
    with pytest.raises(RefusedError, match=next(iter(change))):
        FileJournal(path).state()


def test_several_at_once_lose_nothing(path: Path):
    # Prevents: two refreshes that read the file together, and the second record undoes the first.
    names = [f"{number:02}" for number in range(40)]
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda name: FileJournal(path).record(intent(name)), names))
    assert sorted(each.request_id for each in FileJournal(path).intents()) == names


RECORD_FOR_EVER = """
import itertools, pathlib, resource, sys
from tableau_pipeline.core.file_journal import FileJournal
from tableau_pipeline_tests.core.test_file_journal import intent

path, size = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
for number in itertools.count():
    FileJournal(pathlib.Path(path)).record(intent(str(number)))
    print(number, flush=True)
"""


@pytest.mark.parametrize(("size", "killed_after"), [(10_000, None), (10**9, 7)])
def test_cut_off_while_it_writes(path: Path, size: int, killed_after: int | None):
    # Prevents: half a journal, or an intent that is lost although its sending went on.
    command = [sys.executable, "-c", RECORD_FOR_EVER, str(path), str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        heard = list(islice(process.stdout, killed_after))
        process.send_signal(signal.SIGKILL)
        heard += process.stdout
    numbers = [int(each.request_id) for each in FileJournal(path).intents()]
    assert numbers == list(range(len(numbers)))
    # One more may have come to the file, but not to its maker's ears.
    assert len(heard) <= len(numbers) <= len(heard) + 1
    assert len(heard) >= 7


def test_on_disk_before_it_counts(path: Path, monkeypatch: pytest.MonkeyPatch):
    # Prevents: an empty journal after a loss of power, which the file's name survived.
    seen = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        seen.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), path.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    FileJournal(path).record(intent("first"))
    assert seen == [(False, False), (True, True)]
