import json
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from enum import Enum
from itertools import islice
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tableau_pipeline.core.checkpoint import Checkpoint, Outcome
from tableau_pipeline.core.journal import (
    FORMAT,
    Claim,
    ClaimRelease,
    Intent,
    Record,
    Recovered,
    read_record,
)
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.outcome import Distrust, Doubt
from tableau_pipeline.scripting.file_journal import FileJournal
from tableau_pipeline_tests.refresh.support.models import airlines, flights, snapshot
from tableau_pipeline_tests.refresh.support.states import NOON, checkpoint

NEWER = {"format": FORMAT + 1}


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
    [b"", b"{}", b"[]", b"null", b'{"format": 4, "records": [', b"\xff\x00", b"not JSON"],
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


@pytest.mark.parametrize(
    "change", [{"format": FORMAT + 1}, {"cursor": 7}, {"records": [{"kind": "x"}]}]
)
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
from tableau_pipeline_tests.core.test_journal import intent

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


TEXT = st.text(max_size=8)
INSTANT = st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC))
# 10^10 rows with the largest hash.
SUM = st.integers(-(2**97), 2**97)
PLAIN = {
    str: TEXT,
    int: st.integers(0, 2**40),
    float: st.floats(0, 30),
    bool: st.booleans(),
    datetime: INSTANT,
    NoneType: st.none(),
    Column: st.builds(Column, TEXT, TEXT),
    Distrust: st.builds(Distrust, st.sampled_from(Doubt), TEXT),
}
# Of these, each release and each kind of record has one value.
FIXED = {"kind", "format", "release", "algorithm"}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """All values that a field of a record may have, by its type."""
    arguments = get_args(kind)
    match get_origin(kind) or kind:
        case origin if origin in (Annotated, Union, UnionType):
            of = arguments[:1] if origin is Annotated else arguments
            return st.one_of(*map(values, of))
        case origin if origin is tuple and Ellipsis not in arguments:
            return st.tuples(*map(values, arguments))
        case origin if origin is tuple:
            return st.lists(values(arguments[0]), max_size=2).map(tuple)
        case origin if origin is frozenset:
            return st.frozensets(values(arguments[0]), max_size=2)
        case origin if origin is dict:
            return st.dictionaries(*map(values, arguments), max_size=2)
        case origin if origin is Literal:
            return st.sampled_from(arguments)
        case origin if issubclass(origin, Enum):
            return st.sampled_from(origin)
        case origin if issubclass(origin, BaseModel) and origin is not Fingerprint:
            fields = origin.model_fields.items()
            given = {name: values(each.annotation) for name, each in fields if name not in FIXED}
            return st.builds(origin, **given)
    return PLAIN[kind]


FINGERPRINT = st.builds(Fingerprint, rows=st.integers(0, 10**12), hash_sum=SUM)
PLAIN[Fingerprint] = FINGERPRINT
RECORD = st.one_of(*map(values, (Intent, Claim, ClaimRelease, Recovered)))


@given(record=RECORD)
def test_records_survive_json(record: BaseModel):
    """Prevents: what one run records reads otherwise in the next, or as another kind of record."""
    kept = json.loads(json.dumps(record.model_dump(mode="json")))
    assert read_record(kept, repair="") == record


@given(hash_sum=st.integers(-(2**97), 2**97))
def test_sums_survive_readers_that_know_floats_only(hash_sum: int):
    """Prevents: a browser or Dagster's GraphQL rounds a sum, and all content looks changed."""
    kept = Fingerprint(rows=1, hash_sum=hash_sum).model_dump(mode="json")
    read = json.loads(json.dumps(kept), parse_int=float)
    assert Fingerprint.model_validate(read).hash_sum == hash_sum


@given(
    record=RECORD,
    change=st.sampled_from([{"format": FORMAT + 1}, {"format": FORMAT + 1, "windows": []}]),
)
def test_records_of_a_later_release_are_refused_by_name(record: Record, change: dict):
    """Prevents: a claim or an open request of a newer release is overlooked in an upgrade."""
    stored = record.model_dump(mode="json") | change | {"release": "9.8.7"}
    with pytest.raises(RefusedError, match=r"release 9\.8\.7 of tableau_pipeline wrote it"):
        read_record(stored, repair="")


def test_records_of_an_earlier_release_are_named_as_such():
    """Prevents: after an upgrade, a journal that passes for damaged."""
    stored = intent("first").model_dump(mode="json") | {"format": FORMAT - 1}
    with pytest.raises(RefusedError, match=r"an earlier release .* \(format 3\).*Wipe it"):
        read_record(stored, repair="Wipe it")


@pytest.mark.parametrize(
    "stored", [None, [], {}, {"kind": "claim"}, {"format": FORMAT}, "x"], ids=repr
)
def test_what_is_no_record_is_refused(stored: object):
    """Prevents: a damaged claim is overlooked."""
    with pytest.raises(RefusedError, match="damaged"):
        read_record(stored, repair="")


def test_data_version_tells_contents_apart(tmp_path: Path):
    """Prevents: Dagster takes new content for old, or starts downstream work for nothing."""
    rows = flights(3)
    same = [snapshot(tmp_path, rows), snapshot(tmp_path, rows.slice(0))]
    others = [
        flights(3, delay=1),
        airlines(),
        rows.rename_columns(["id", "carrier", "delay"]),
        rows.select(["carrier", "flight_id", "delay"]),
        rows.cast(rows.schema.set(2, pa.field("delay", pa.int64()))),
    ]
    different = [same[0], *(snapshot(tmp_path, each) for each in others)]
    assert len({each.data_version for each in same}) == 1
    assert len({each.data_version for each in different}) == 6
