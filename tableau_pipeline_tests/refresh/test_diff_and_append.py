"""The refresh policies `diff` and `append`: the rows that they ship or refuse."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tableau_pipeline.core.policies import Append, Diff, Feed, Policy, ReplaceAll
from tableau_pipeline.extracts import builder
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import refused, ships, table

BY_ID, FROM_ID = Diff(("id",)), Append("id")
ROWS = [(2, "a"), (3, "b"), (5, None), (7, "d")]
DAY, NOON = date(2025, 3, 1), datetime(2025, 3, 1, 12, 0, 0, 1)
DAYS = timedelta(days=1)


def remarks(rows: Sequence[tuple], type_: pa.DataType | None = None) -> pa.Table:
    return table(list(rows), id=type_ or pa.int64(), word=pa.string())


def publish(pipeline: Pipeline, rows: Sequence[tuple], policy: Policy) -> None:
    pipeline.policy(policy)
    pipeline.model("flights", remarks(rows))
    pipeline.run()


# Each step: the rows, and how many rows an update deletes and inserts (None: no update).
DIFFS = [
    (ROWS[::-1], None),
    ([*ROWS, (11, "e")], (0, 1)),
    (ROWS, (1, 0)),
    ([(2, "A"), *ROWS[1:]], (1, 1)),
    ([(2, None), *ROWS[1:]], (1, 1)),
    ([(2, "b"), (3, None), *ROWS[2:]], (2, 2)),
    ([(1, "b"), (3, None), *ROWS[2:]], (1, 1)),
    ([(3, "c"), (7, "d"), (11, "e")], (3, 2)),
]


def test_changed_rows_are_shipped(pipeline: Pipeline):
    """Prevents: a refresh misses a kind of change, or ships rows that did not change."""
    publish(pipeline, ROWS, BY_ID)
    for rows, expected in DIFFS:
        assert ships(pipeline, remarks(rows)) == (expected and RowCounts(*expected)), rows
    updates = sum(expected is not None for _, expected in DIFFS)
    assert pipeline.journal.checkpoint().updates == updates


FIVE = [(number, "same") for number in range(1, 6)]
LATER = [*FIVE, (6, "same")]
APPENDS = [
    (FIVE[::-1], None),
    ([*LATER, (7, "same")], (1, 3)),
    ([*LATER, (7, "new")], (1, 1)),
    (LATER, (1, 0)),
    ([*LATER, (6, "twin"), (8, "same")], (1, 3)),
]
BEYOND = [
    [*FIVE[:3], (4, "new"), *LATER[4:]],
    LATER[1:],
    [*FIVE[:4], (4, "same"), *LATER[4:]],
    FIVE[:4],
]


@pytest.mark.slow
def test_rows_from_the_last_value_on_are_shipped(pipeline: Pipeline):
    """Prevents: `append` loses or repeats late rows, or misses changes of older rows."""
    publish(pipeline, FIVE, FROM_ID)
    for rows, expected in APPENDS:
        assert ships(pipeline, remarks(rows)) == (expected and RowCounts(*expected)), rows
    for rows in BEYOND:
        shipped = ships(pipeline, remarks(rows))
        assert str(shipped.whole).startswith("rows changed beyond those")


LOOKBACKS: list[tuple[pa.DataType, list[Any], Any, int]] = [
    (pa.int8(), [-128, -127, -126], 1, 2),
    (pa.int64(), [-(2**63), 0, 2**63 - 1], 2**62, 1),
    (pa.float64(), [0.5, 1.25, 2.5], 1, 1),
    (pa.decimal128(38, 2), [Decimal("1.00"), Decimal("2.01"), Decimal("3.00")], 1, 2),
    (pa.date32(), [DAY + n * DAYS for n in range(4)], "2 days", 3),
    (pa.date32(), [DAY + n * DAYS for n in range(4)], "12 hours", 2),
    (pa.date32(), [date(2025, 1, 31), date(2025, 2, 28), date(2025, 3, 31)], "1 month", 2),
    (pa.timestamp("us"), [NOON - n * DAYS for n in (3, 2, 1)], "1 day", 2),
    (
        pa.timestamp("us", "UTC"),
        [
            NOON.replace(tzinfo=UTC) - timedelta(hours=n, microseconds=m)
            for n, m in ((2, 1), (2, 0), (0, 0))
        ],
        "2 hours",
        2,
    ),
    (pa.string(), ["a", "b", "é"], None, 1),
    (pa.bool_(), [False, True], None, 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("type_", "cursors", "lookback", "affected"), LOOKBACKS, ids=str)
def test_lookback(
    pipeline: Pipeline, type_: pa.DataType, cursors: list[Any], lookback: Any, affected: int
):
    """Prevents: a refresh misses a late row within the lookback, or ships too many rows."""
    rows = [(cursor, "same") for cursor in cursors]
    pipeline.policy(Append("id", lookback))
    pipeline.model("flights", remarks(rows, type_))
    pipeline.run()
    late = remarks([*rows, rows[-affected]], type_)
    assert ships(pipeline, late) == RowCounts(deleted=affected, inserted=affected + 1)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("names", [("id", "h"), ("old", "new")])
def test_composite_keys(pipeline: Pipeline, names: tuple[str, str]):
    """Prevents: a refresh mixes up rows with partly equal keys, or rejects a key named "old"."""
    types = {names[0]: pa.int64(), names[1]: pa.string(), "word": pa.string()}
    pipeline.policy(Diff(names))
    pipeline.model("flights", table([(1, "x", "a"), (1, "y", "b"), (2, "x", "c")], **types))
    pipeline.run()
    rows = [(1, "x", "a"), (1, "y", "B"), (2, "y", "c")]
    assert ships(pipeline, table(rows, **types)) == RowCounts(deleted=2, inserted=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "type_"),
    [
        (["", "2", "two"], pa.string()),
        ([float("nan"), 2.0, 1e300], pa.float64()),
        ([date(2024, 2, 29)], pa.date32()),
    ],
    ids=["text", "floats", "date"],
)
def test_feed_whose_keys_are_of_another_type(
    pipeline: Pipeline, keys: list[object], type_: pa.DataType
):
    """Prevents: a refresh fails in hyperd, as a feed of changed keys has keys of another type."""
    pipeline.feed("feed", table([], id=type_))
    publish(pipeline, ROWS, Diff(("id",), Feed("feed", (("id", "id"),))))
    pipeline.feed("feed", table([(key,) for key in keys], id=type_))
    shipped = ships(pipeline, remarks([(2, "A"), *ROWS[1:]]))
    assert shipped == RowCounts(deleted=1, inserted=1)


NULL, TWICE = [*ROWS, (None, "lost")], [*ROWS, (2, "x"), (3, "y")]
NOT_UNIQUE = "id is not unique: 2 values of it repeat"
UNFIT = [
    (BY_ID, TWICE, ("refresh: diff", 'table "flights"', NOT_UNIQUE, "more columns in the key")),
    (BY_ID, [*ROWS, ROWS[0]], ("id is not unique: 1 value of it repeats",)),
    (BY_ID, NULL, ("refresh: diff", "id is NULL in 1 row", "more columns in the key")),
    (FROM_ID, NULL, ("refresh: append", "id is NULL in 1 row", "needs a cursor")),
]


@pytest.mark.slow
def test_rows_that_nothing_identifies(pipeline: Pipeline):
    """Prevents: an update deletes the wrong one of two rows, or misses a row without a key."""
    publish(pipeline, ROWS, BY_ID)
    sent = pipeline.journal.all_intents()
    for policy, rows, phrases in UNFIT:
        pipeline.policy(policy)
        pipeline.model("flights", remarks(rows))
        for build_only in (False, True):
            refused(partial(pipeline.run, build_only=build_only), *phrases)
    assert pipeline.journal.all_intents() == sent


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "rows", "phrases"), UNFIT[1:], ids=["twice", "null", "cursor"])
def test_policy_that_comes_after_unfit_rows(
    pipeline: Pipeline, policy: Policy, rows: list[tuple], phrases: tuple[str, ...]
):
    """Prevents: a new policy accepts unfit keys of published rows, or never replaces the rows."""
    publish(pipeline, rows, ReplaceAll())
    pipeline.policy(policy)
    for _ in range(2):
        refused(pipeline.run, phrases[0])
    assert ships(pipeline, remarks(ROWS))


def test_a_cursor_is_no_key(pipeline: Pipeline):
    """Prevents: a column that passed as a cursor passes as a key, although its values repeat."""
    publish(pipeline, TWICE, FROM_ID)
    pipeline.policy(BY_ID)
    refused(pipeline.run, "id is not unique")


def test_key_that_was_looked_at_is_remembered(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch):
    """Prevents: every refresh checks the keys of unchanged rows again."""
    publish(pipeline, ROWS, ReplaceAll())
    pipeline.policy(BY_ID)
    pipeline.run()
    monkeypatch.setattr(builder, "check_rows", None)
    pipeline.run()


@pytest.mark.parametrize(
    ("policy", "phrase"),
    [
        (Diff(("idd",)), '"flights": refresh: diff: key names "idd", but'),
        (Append("idd"), 'cursor names "idd"'),
        (Append("id", "3 days"), 'lookback "3 days" does not go with the cursor "id" of type big'),
        (Append("word", 3), 'lookback "3" does not go with the cursor "word" of type string'),
        (Append("raw"), 'append: the cursor "raw" is binary'),
    ],
)
def test_what_no_model_can_do(pipeline: Pipeline, policy: Policy, phrase: str):
    """Prevents: a mistake in the declaration shows as an error of hyperd."""
    pipeline.policy(policy)
    pipeline.model("flights", remarks(ROWS).append_column("raw", pa.array([b"a"] * 4)))
    refused(pipeline.run, phrase)
    assert pipeline.sessions == 0
