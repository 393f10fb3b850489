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

from tableau_pipeline.core.checkpoint import Checkpoint, Outcome
from tableau_pipeline.core.journal import (
    Claim,
    ClaimRelease,
    Intent,
)
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.scripting.file_journal import FileJournal
from tableau_pipeline_tests.refresh.support.states import NOON, checkpoint


def intent(name: str, refresh: int = 1) -> Intent:
    return Intent(
        refresh=refresh,
        request_id=name,
        recorded_at=NOON,
        run_id="test",
        mode=None,
        name="Sales",
        project_id="project-1",
        luid="luid-1",
        target=checkpoint(),
    )


def closing(refresh: int, left: Checkpoint | None = None) -> ClaimRelease:
    return ClaimRelease(refresh=refresh, claim=f"claim {refresh}", checkpoint=left)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a journal, in a folder that is not there yet."""
    return tmp_path / "journals" / "sales.json"


def test_what_one_process_kept_the_next_one_reads(path: Path):
    # Prevents: a refresh that does not know what the one before it sent.
    claim = Claim(refresh=1, owner=FileJournal(path).owner)
    done = intent("first").model_copy(update={"outcome": Outcome.DONE})
    records = [claim, intent("first"), done, closing(1), intent("second", 2)]
    for record in records:
        FileJournal(path).append(record)
    assert list(FileJournal(path).records()) == records


def test_what_came_before_a_checkpoint_has_served(path: Path):
    # Prevents: a file that grows with every refresh; a record lost that may still matter.
    journal = FileJournal(path)
    for record in (intent("a", 1), closing(1), intent("b", 2), closing(2), intent("c", 3)):
        journal.append(record)
    done = closing(2, checkpoint(refresh=2))
    journal.append(done)
    kept = [each for each in journal.records() if not isinstance(each, ClaimRelease)]
    assert kept == [intent("b", 2), intent("c", 3)]
    assert done in journal.records()


def test_name_of_the_instance(path: Path):
    # Prevents: a deployment that takes its own data source for somebody else's, or the reverse.
    first = FileJournal(path)
    named = first.instance
    first.append(intent("first"))
    assert {first.instance, FileJournal(path).instance} == {named}
    assert FileJournal(path.with_name("other.json")).instance != named
    path.unlink()
    assert FileJournal(path).instance != named


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"null", b'{"format": 3, "records": [', b"\xff\x00", b"not JSON"],
    ids=repr,
)
def test_what_is_no_journal_is_refused_and_left_alone(path: Path, content: bytes):
    # Prevents: a damaged journal that passes for a first refresh, or somebody's file overwritten.
    path.parent.mkdir()
    path.write_bytes(content)
    journal = FileJournal(path)
    for use in (journal.records, lambda: journal.append(intent("first")), lambda: journal.instance):
        with pytest.raises(RefusedError) as refused:
            use()
        assert str(path) in str(refused.value)
        assert "move it away" in str(refused.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize("change", [{"format": 4}, {"cursor": 7}, {"records": [{"kind": "x"}]}])
def test_a_journal_of_another_version_is_refused(path: Path, change: dict):
    # Prevents: a field of a later version, which changes the meaning, is overlooked.
    FileJournal(path).append(intent("first"))
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), encoding="utf-8")
    with pytest.raises(RefusedError, match=next(iter(change))):
        FileJournal(path).records()


def test_several_at_once_lose_nothing(path: Path):
    # Prevents: two refreshes that read the file together, and the second record undoes the first.
    names = [f"{number:02}" for number in range(40)]
    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda name: FileJournal(path).append(intent(name)), names))
    assert sorted(request_ids(path)) == names


def request_ids(path: Path) -> list[str]:
    return [each.request_id for each in FileJournal(path).records() if isinstance(each, Intent)]


RECORD_FOR_EVER = """
import itertools, pathlib, resource, sys
from tableau_pipeline.scripting.file_journal import FileJournal
from tableau_pipeline_tests.core.test_file_journal import intent

path, size = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
for number in itertools.count():
    FileJournal(pathlib.Path(path)).append(intent(str(number)))
    print(number, flush=True)
"""


@pytest.mark.parametrize(("size", "killed_after"), [(20_000, None), (10**9, 7)])
@pytest.mark.slow
def test_cut_off_while_it_writes(path: Path, size: int, killed_after: int | None):
    # Prevents: half a journal, or an intent that is lost although its sending went on.
    command = [sys.executable, "-c", RECORD_FOR_EVER, str(path), str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        heard = list(islice(process.stdout, killed_after))
        process.send_signal(signal.SIGKILL)
        heard += process.stdout
    numbers = list(map(int, request_ids(path)))
    assert numbers == list(range(len(numbers)))
    # One more may have come to the file, but not to its maker's ears.
    assert len(heard) <= len(numbers) <= len(heard) + 1
    assert len(heard) >= 7


def test_on_disk_before_it_counts(path: Path, monkeypatch: pytest.MonkeyPatch):
    # Prevents: an empty journal after a loss of power, which the file's name survived.
    seen = []

    def watched(descriptor: int) -> None:
        seen.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), path.exists()))

    monkeypatch.setattr(os, "fsync", watched)
    FileJournal(path).append(intent("first"))
    assert seen == [(False, False), (True, True)]


HOLD = """
import pathlib, sys, time
from tableau_pipeline.scripting.file_journal import FileJournal

with FileJournal(pathlib.Path(sys.argv[1])).lock(0):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_refreshes_at_a_time_and_the_dead_hold_nothing(path: Path):
    # Prevents: two processes that refresh at once, or a killed one that blocks all others.
    journal = FileJournal(path)
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert next(process.stdout) == "held\n"
        with (
            pytest.raises(RefreshError, match=r"sales\.json\.refresh\.lock .* hangs"),
            journal.lock(0.1),
        ):
            pytest.fail("two at once")
        # Whoever looks on knows nothing of the process, and must not take it for dead.
        assert not journal.has_ended(journal.owner)
        journal.append(intent("meanwhile"))
        process.kill()
    with journal.lock(5):
        assert journal.has_ended(journal.owner)
