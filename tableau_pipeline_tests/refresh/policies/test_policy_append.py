from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Append, Diff, Replace
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import ships, table

DAY, NOON = date(2025, 3, 1), datetime(2025, 3, 1, 12, 0, 0, 1)
DAYS = timedelta(days=1)
INT = pa.int64()


def read(cursors: list[Any], type_: pa.DataType = INT, **words: str) -> pa.Table:
    """Something that was read at each value of a cursor; `at3` is what was read at 3."""
    rows = [(cursor, words.get(f"at{cursor}", "same")) for cursor in cursors]
    return table(rows, cursor=type_, word=pa.string())


def appending(pipeline: Pipeline, rows: pa.Table, lookback: Any = None) -> None:
    pipeline.policy(Append("cursor", lookback))
    pipeline.model("flights", rows)
    pipeline.run()


@pytest.mark.few_variants(2)
@pytest.mark.parametrize(
    ("rows", "shipped"),
    [
        (read([1, 2, 3, 4, 5]), None),
        (read([5, 4, 3, 2, 1]), None),
        (read([1, 2, 3, 4, 5, 6, 7]), RowCounts(deleted=1, inserted=3)),
        (read([1, 2, 3, 4, 5, 5, 6]), RowCounts(deleted=1, inserted=3)),
        (read([1, 2, 3, 4, 5], at5="new"), RowCounts(deleted=1, inserted=1)),
        (read([1, 2, 3, 4]), RowCounts(deleted=1, inserted=0)),
    ],
    ids=["none", "order", "later", "at the end", "last changed", "last gone"],
)
def test_rows_from_the_last_value_on_are_shipped(
    pipeline: Pipeline, rows: pa.Table, shipped: RowCounts | None
):
    """Prevents: a row that came late to the last value is never published, or comes twice."""
    appending(pipeline, read([1, 2, 3, 4, 5]))
    assert ships(pipeline, rows) == shipped


@pytest.mark.few_variants(2)
@pytest.mark.parametrize(
    "rows",
    [
        read([1, 2, 3, 4, 5, 6], at4="new"),
        read([1, 3, 4, 5, 6]),
        read([1, 2, 3, 4, 4, 5, 6]),
        read([1, 2, 3]),
        read([2, 3, 4, 5, 1, 1, 1]),
        read([7, 8, 9, 10]),
    ],
    ids=["changed", "gone", "late", "shorter", "no later ones", "others"],
)
@pytest.mark.slow
def test_changes_before_it_ship_the_table_whole(pipeline: Pipeline, rows: pa.Table):
    """Prevents: a correction of older rows never reaches the dashboards."""
    appending(pipeline, read([1, 2, 3, 4, 5]))
    shipped = ships(pipeline, rows)
    assert shipped is not None
    assert shipped.whole is not None
    assert shipped.whole.startswith("rows changed beyond those that its refresh policy affects")
    assert (shipped.deleted, shipped.inserted) == (5, rows.num_rows)


def moments(*back: timedelta, zone: Any = None) -> list[datetime]:
    return [NOON.replace(tzinfo=zone) - each for each in back]


@pytest.mark.few_variants(3)
@pytest.mark.parametrize(
    ("type_", "cursors", "lookback", "affected"),
    [
        (pa.int32(), [1, 2, 3, 4, 5], 2, 3),
        (pa.int32(), [1, 2, 3, 4, 5], "2", 3),
        (pa.int8(), [-128, -127, -126], 1, 2),
        (pa.int64(), [-(2**63), 0, 2**63 - 1], 2**62, 1),
        (pa.float64(), [0.5, 1.25, 2.5], 1, 1),
        (pa.decimal128(38, 2), [Decimal("1.00"), Decimal("2.01"), Decimal("3.00")], 1, 2),
        (pa.date32(), [DAY, DAY + DAYS, DAY + 2 * DAYS, DAY + 3 * DAYS], "2 days", 3),
        (pa.date32(), [DAY, DAY + DAYS, DAY + 2 * DAYS, DAY + 3 * DAYS], "12 hours", 2),
        (pa.date32(), [date(2025, 1, 31), date(2025, 2, 28), date(2025, 3, 31)], "1 month", 2),
        (pa.timestamp("us"), moments(3 * DAYS, 2 * DAYS, DAYS), "1 day", 2),
        (
            pa.timestamp("us", "UTC"),
            moments(timedelta(hours=2, microseconds=1), timedelta(hours=2), 0 * DAYS, zone=UTC),
            "2 hours",
            2,
        ),
    ],
    ids=str,
)
@pytest.mark.slow
def test_lookback(
    pipeline: Pipeline, type_: pa.DataType, cursors: list[Any], lookback: Any, affected: int
):
    """Prevents: a row that comes late within the lookback is not shipped, or too many are."""
    rows = read(cursors, type_)
    appending(pipeline, rows, lookback)
    late = pa.concat_tables([rows, read(cursors[-affected:][:1], type_)])
    assert ships(pipeline, late) == RowCounts(deleted=affected, inserted=affected + 1)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    ("type_", "cursors"),
    [
        (pa.string(), ["a", "b", "é"]),
        (pa.date32(), [DAY, DAY + DAYS, DAY + 2 * DAYS]),
        (pa.timestamp("us"), moments(2 * DAYS, DAYS, 0 * DAYS)),
        (pa.bool_(), [False, True, True]),
    ],
    ids=str,
)
def test_other_cursors(pipeline: Pipeline, type_: pa.DataType, cursors: list[Any]):
    """Prevents: a cursor of some type needs a lookback to work."""
    appending(pipeline, read(cursors[:2], type_))
    assert ships(pipeline, read(cursors, type_)) == RowCounts(deleted=1, inserted=2)


def test_cursor_without_an_order(pipeline: Pipeline):
    """Prevents: every other refresh fails on the server, which cannot compare such values."""
    pipeline.policy(Append("cursor"))
    pipeline.model("flights", read([b"a"], pa.binary()))
    with pytest.raises(RefusedError, match='append: the cursor "cursor" is binary'):
        pipeline.run()


@pytest.mark.parametrize("publish", [True, False])
def test_cursor_that_is_null(pipeline: Pipeline, publish: bool):
    """Prevents: a row without a cursor is never published."""
    appending(pipeline, read([1, 2]))
    pipeline.model("flights", read([1, 2, None], atNone="lost"))
    with pytest.raises(RefusedError) as caught:
        pipeline.run(publish=publish)
    for part in ("refresh: append", "cursor is NULL in 1 row", "word = lost", "needs a cursor"):
        assert part in str(caught.value)


def test_cursor_named_for_rows_that_stay(pipeline: Pipeline):
    """Prevents: a NULL that nobody looks for, as only new files are read."""
    pipeline.policy(Replace())
    pipeline.model("flights", read([1, None]))
    pipeline.run()
    pipeline.policy(Append("cursor"))
    for _ in range(2):
        with pytest.raises(RefusedError, match="cursor is NULL in 1 row"):
            pipeline.run()


def test_a_cursor_is_no_key(pipeline: Pipeline):
    """Prevents: a repeated key, as the same column was checked for something else."""
    appending(pipeline, read([1, 2, 2]))
    pipeline.policy(Diff(("cursor",)))
    with pytest.raises(RefusedError, match=r"cursor is not unique, for instance 2 \(2 times\)"):
        pipeline.run()


@pytest.mark.slow
def test_nulls_of_another_policy(pipeline: Pipeline):
    """Prevents: rows that were published without a cursor stay for ever."""
    pipeline.policy(Replace())
    for rows in (read([None, None]), read([1, 2, None])):
        pipeline.policy(Replace())
        pipeline.model("flights", rows)
        pipeline.run()
        pipeline.policy(Append("cursor"))
        shipped = ships(pipeline, read([1, 2]))
        assert shipped is not None
        assert shipped.whole


@pytest.mark.parametrize(
    ("cursor", "lookback", "phrase"),
    [
        ("cursr", None, 'cursor names "cursr"'),
        ("cursor", "3 days", 'lookback "3 days" does not go with the cursor "cursor" of type big'),
        ("word", 3, 'lookback "3" does not go with the cursor "word" of type string'),
    ],
)
def test_what_no_model_can_do(pipeline: Pipeline, cursor: str, lookback: Any, phrase: str):
    """Prevents: a mistake in the declaration shows as an error of hyperd."""
    pipeline.policy(Append(cursor, lookback))
    pipeline.model("flights", read([1, 2]))
    with pytest.raises(RefusedError) as caught:
        pipeline.run()
    assert phrase in str(caught.value)
    assert pipeline.sessions == 0
