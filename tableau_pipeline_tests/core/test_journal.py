"""The history that records add up to, and how a release reads records of other releases."""

import json
from datetime import UTC, datetime
from enum import Enum
from functools import reduce
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tableau_pipeline.core import journal
from tableau_pipeline.core.checkpoint import Checkpoint, Outcome, Window
from tableau_pipeline.core.journal import (
    FORMAT,
    KEPT,
    Claim,
    ClaimRelease,
    History,
    Intent,
    Owner,
    Record,
    Recovered,
    StoredRecord,
    read_record,
)
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.outcome import Distrust, Doubt
from tableau_pipeline_tests.refresh.support.models import airlines, flights, snapshot
from tableau_pipeline_tests.refresh.support.states import NOON, checkpoint


def claim(refresh: int, run: str = "test") -> Claim:
    return Claim(refresh=refresh, id=f"claim {refresh}", owner=Owner(run_id=run))


def intent(name: str, refresh: int = 1, **changes: Any) -> Intent:
    usual = {"recorded_at": NOON, "run_id": "test", "mode": None, "name": "Sales"}
    usual |= {"project_id": "project-1", "luid": "luid-1", "target": checkpoint(refresh=refresh)}
    return Intent(refresh=refresh, request_id=name, **usual | changes)


def closing(refresh: int, left: Checkpoint | None = None) -> ClaimRelease:
    return ClaimRelease(refresh=refresh, claim=f"claim {refresh}", checkpoint=left)


def history_of(*records: Record) -> History:
    return reduce(History.after, records, History())


def test_a_claim_holds_until_its_own_end():
    """Prevents: two refreshes hold one data source, or an ended refresh blocks all others."""
    first, second = claim(1), claim(2)
    held = history_of(first)
    assert held.claim == first
    assert held.after(intent("first")).claim == first
    assert held.after(closing(1)).claim is None
    # A second claim follows if another process has found that the first refresh has ended.
    assert held.after(second).claim == second
    assert held.after(second).after(closing(1)).claim == second
    assert held.after(second).after(closing(2)).claim is None


def test_numbers_of_records_and_of_refreshes():
    """Prevents: a refresh gets the number and the requests of an earlier refresh."""
    history = history_of(claim(1), intent("first"), closing(1), claim(2), intent("late", 7))
    assert (history.number, history.refresh) == (5, 7)
    assert history.after(closing(2)).refresh == 7


def test_a_checkpoint_of_an_overtaken_refresh_counts_for_nothing():
    """Prevents: the late record of an older run replaces the newest checkpoint."""
    newest = history_of(claim(1), claim(2), closing(2, checkpoint(refresh=2, revision=2)))
    late = newest.after(closing(1, checkpoint(refresh=1)))
    assert late.checkpoint == newest.checkpoint == checkpoint(refresh=2, revision=2)
    assert (late.settled, late.number) == (2, 4)


def test_what_came_before_a_checkpoint_has_served():
    """Prevents: records grow with every refresh, or a request that still matters is lost."""
    history = history_of(
        claim(1), intent("a", 1), claim(2), intent("b", 2), intent("c", 3),
        closing(2, checkpoint(refresh=2)),
    )  # fmt: skip
    assert history.intents == (intent("c", 3),)
    assert history.checkpoint == checkpoint(refresh=2)
    # The checkpoint already covers this request of an overtaken refresh.
    assert history.after(intent("a", 1, outcome=Outcome.DONE)).intents == history.intents
    settled = history.after(Recovered(refresh=4, record=checkpoint(refresh=3)))
    assert (settled.intents, settled.settled) == ((), 3)
    assert settled.checkpoint == checkpoint(refresh=3)


def test_killed_refreshes_do_not_add_up():
    """Prevents: records grow with each night in which a refresh is killed."""
    history, sizes = history_of(claim(1), closing(1, checkpoint(refresh=1))), set()
    for number in range(100, 160):
        recovered = history.recovered
        for request in history.intents:
            recovered = recovered.after(request.model_copy(update={"outcome": Outcome.LOST}))
        for record in (claim(number), recovered.recorded_by(number), intent("lost", number)):
            history = history.after(record)
        assert len(history.intents) == 1
        sizes.add(len(history.model_dump_json()))
    assert history.recovered.luid == "luid-1"
    assert max(sizes) < 6000
    # Only longer numbers, and the first of the killed refreshes, change the size.
    assert len(sizes) <= 5


def test_of_two_outcomes_the_one_from_the_server_counts():
    """Prevents: an assumed or an older outcome of a request replaces the real outcome."""
    first = intent("first")
    lost = intent("first", outcome=Outcome.LOST)
    done = intent("first", outcome=Outcome.DONE, job_id="job-1")
    overtaken = intent("first", 3, outcome=Outcome.DONE, target=None)
    for records, counts in (
        ((first, lost), lost),
        ((first, lost, first), lost),
        ((first, lost, done), done),
        ((first, done, lost), done),
        ((first, overtaken, done), overtaken),
    ):
        assert history_of(*records).intents == (counts,)


def test_requests_are_in_the_order_of_their_sending():
    """Prevents: requests are applied in another order than they were sent."""
    records = [intent("d", 2, step=2), intent("b", 1, step=2), intent("a"), intent("c", 2)]
    found = history_of(*records, intent("b", 1, step=2, outcome=Outcome.DONE)).intents
    assert [each.request_id for each in found] == ["a", "b", "c", "d"]


def test_what_the_server_may_hold_is_needed():
    """Prevents: a later refresh lacks snapshots or metadata values that it must compare."""
    left = checkpoint(refresh=1, written=("base",))
    base = history_of(claim(1), closing(1, left))
    states = {
        outcome: checkpoint(refresh=2, written=(str(outcome),)) for outcome in (*Outcome, None)
    }
    history = base
    for step, (outcome, target) in enumerate(states.items()):
        history = history.after(intent(str(outcome), 2, step=step, target=target, outcome=outcome))
    assert history.written == {"base", "done", "lost", "None"}
    assert history.published[-1] == left
    assert history.published_version("dbt/orders") == 1
    assert history.published_version("other") is None
    assert history.versions == {("dbt/orders", 1)}


def refused(refresh: int) -> tuple[Record, ...]:
    return claim(refresh), closing(refresh)


def completed(refresh: int) -> tuple[Record, ...]:
    return claim(refresh), closing(refresh, checkpoint(refresh=refresh))


@pytest.mark.parametrize("refresh", [refused, completed])
def test_a_history_is_stored_so_often_and_no_more(refresh: Any, monkeypatch: pytest.MonkeyPatch):
    """Prevents: records pile up for ever, or disappear while a process reads them."""
    monkeypatch.setattr(journal, "KEPT", 10)
    history, floors = History(), [1]
    for number in range(1, 100):
        for record in refresh(number):
            history = history.after(record)
            assert history.number - history.floor <= 16
        if history.floor != floors[-1]:
            floors.append(history.floor)
            assert history.number - history.floor >= 10
    assert floors == sorted(floors)
    assert len(floors) > 10
    assert KEPT >= 100


def test_a_foreign_end_removes_nothing(monkeypatch: pytest.MonkeyPatch):
    """Prevents: an overtaken process removes records while another refresh runs."""
    monkeypatch.setattr(journal, "KEPT", 2)
    held = history_of(*(claim(number) for number in range(1, 10)))
    assert held.after(closing(1, checkpoint())).floor == held.floor == 1
    assert held.after(closing(9)).floor == 7


TEXT = st.text(max_size=8)
INSTANT = st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC))
# The bounds are the sums for 10^10 rows with the largest hash.
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
    Window: st.builds(Window, INSTANT, INSTANT),
}
# Fields that tests do not vary, because each release or kind of record has one value for them.
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


def stored_as(record: Record, history: History) -> StoredRecord:
    return StoredRecord(format=FORMAT, record=record, history=history)


@pytest.mark.slow
@given(record=RECORD)
def test_records_survive_json(record: Record):
    """Prevents: the next run reads a record with other values, or as another kind of record."""
    stored = stored_as(record, history_of(record))
    assert read_record(stored.model_dump_json(), repair="") == stored


@settings(max_examples=20)
@given(history=values(History))
def test_histories_survive_json(history: History):
    """Prevents: a stored history differs from its original, so that no record can follow it."""
    stored = stored_as(claim(1), history)
    assert read_record(stored.model_dump_json(), repair="").history == history


RELATED = st.lists(
    st.one_of(
        st.builds(claim, st.integers(1, 4)),
        st.builds(closing, st.integers(1, 4), st.sampled_from([None, checkpoint(refresh=3)])),
        st.builds(
            intent,
            st.sampled_from("abc"),
            st.integers(1, 4),
            outcome=st.sampled_from([None, *Outcome]),
            job_id=st.sampled_from([None, "job-1"]),
        ),
        st.builds(Recovered, refresh=st.integers(1, 4)),
    ),
    max_size=20,
)


@given(records=RELATED)
def test_whatever_comes_in_whatever_order(records: list[Record]):
    """Prevents: a request is forgotten or counted twice, or a claim has no refresh."""
    history = History()
    for record in records:
        before, history = history, history.after(record)
        assert history.number == before.number + 1
        assert history.refresh == max(before.refresh, record.refresh)
        assert history.floor == before.floor
        assert history.claim in (record, before.claim, None)
        if history.claim is None and before.claim:
            assert isinstance(record, ClaimRelease)
            assert record.claim == before.claim.id
        names = [each.request_id for each in history.intents]
        assert len(set(names)) == len(names)
        gone = {each.request_id for each in before.intents} - set(names)
        assert gone <= {e.request_id for e in before.intents if e.refresh <= history.settled}
        if isinstance(record, Intent) and record.refresh > before.settled:
            assert record.request_id in names
        # The stored history equals the history in memory, so any process can continue.
        stored = stored_as(record, history)
        assert read_record(stored.model_dump_json(), repair="").history == history


@given(hash_sum=st.integers(-(2**97), 2**97))
def test_sums_survive_readers_that_know_floats_only(hash_sum: int):
    """Prevents: a browser or Dagster's GraphQL rounds a sum, and all content looks changed."""
    kept = Fingerprint(rows=1, hash_sum=hash_sum).model_dump(mode="json")
    read = json.loads(json.dumps(kept), parse_int=float)
    assert Fingerprint.model_validate(read).hash_sum == hash_sum


@pytest.mark.slow
@given(
    record=RECORD,
    change=st.sampled_from([{"format": FORMAT + 1}, {"format": FORMAT + 1, "windows": []}]),
)
def test_records_of_a_later_release_are_refused_by_name(record: Record, change: dict):
    """Prevents: in an upgrade, a release overlooks a claim or a request of a newer release."""
    content = stored_as(record, History()).model_dump(mode="json") | change | {"release": "9.8.7"}
    with pytest.raises(RefusedError, match=r"release 9\.8\.7 of tableau_pipeline wrote it"):
        read_record(json.dumps(content), repair="")


def stored_with(**changes: Any) -> str:
    """The JSON of a record, with some fields changed."""
    stored = stored_as(claim(1), history_of(claim(1)))
    return json.dumps(stored.model_dump(mode="json") | changes)


def test_records_of_an_earlier_release_are_named_as_such():
    """Prevents: after an upgrade, users read that the journal is damaged."""
    with pytest.raises(RefusedError, match=r"an earlier release .* \(format 4\).*Move it away"):
        read_record(stored_with(format=FORMAT - 1), repair="Move it away")


@pytest.mark.parametrize(
    "change",
    [{"cursor": 7}, {"record": {"kind": "x"}}, {"history": {"number": 1, "lease": 60}}],
    ids=str,
)
def test_a_field_that_this_release_does_not_know_is_refused(change: dict):
    """Prevents: a release ignores an unknown field that changes the meaning of a record."""
    assert read_record(stored_with(), repair="").record.kind == "claim"
    with pytest.raises(RefusedError, match=f"damaged, or not a record .*{next(iter(change))}"):
        read_record(stored_with(**change), repair="")


NO_RECORDS = [
    "",
    "null",
    "[]",
    "{}",
    '"x"',
    '{"kind": "claim"}',
    f'{{"format": {FORMAT}}}',
    "x",
    b"\xff",
]


@pytest.mark.parametrize(
    "stored", [*NO_RECORDS, pytest.param(stored_with()[:-9], id="cut off")], ids=repr
)
def test_what_is_no_record_is_refused(stored: str | bytes):
    """Prevents: a refresh overlooks a damaged claim."""
    with pytest.raises(RefusedError, match=r"damaged, or not a record .* Restore a backup"):
        read_record(stored, repair="Restore a backup")


def test_data_version_tells_contents_apart(tmp_path: Path):
    """Prevents: Dagster overlooks new content, or repeats downstream work for equal content."""
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
