"""What `partitions` ships, and windows (`retain`) that move over the rows of a table."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import (
    Append,
    Diff,
    Guard,
    Partitions,
    Policy,
    Replace,
    Retain,
)
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.refresh.plan import NoChange, Update
from tableau_pipeline_tests.refresh.support.partitioned import day, materialize
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import ships, table

# Clocks in Paris go from 2:00 to 3:00 on the first of these nights, and back on the second.
SPRING, AUTUMN = "2025-03-30", "2025-10-26"
PARIS = "Europe/Paris"
OTHER_ZONES = ("UTC", "America/St_Johns", "Pacific/Apia")
NOON = datetime(2026, 3, 30, 12, tzinfo=UTC)
LAX = Guard(min_rows=0, max_shrink=1)
TYPES: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
POLICIES: dict[str, Policy] = {
    "diff": Diff(("id",)),
    "replace": Replace(),
    "append": Append("id"),
    "partitions": Partitions("part"),
}


def moment(instant: datetime, kind: str, zone: str = "UTC") -> Any:
    """A value of a type, by the clock of a zone."""
    local = instant.astimezone(ZoneInfo(zone))
    known = {"date": local.date(), "timestamp": instant}
    return known.get(kind, local.replace(tzinfo=None))


def at(key: str, *hours: float, zone: str = PARIS, kind: str = "timestamp_ntz") -> pa.Table:
    """Rows of a day, at these hours since its beginning: as they really pass."""
    start = day(key, zone=zone).start.astimezone(UTC)
    rows = [(moment(start + timedelta(hours=hour), kind, zone), hour) for hour in hours]
    return table(rows, at=TYPES[kind], hour=pa.float64())


@pytest.fixture
def windows(pipeline: Pipeline) -> Pipeline:
    pipeline.policy(Partitions("at"), guard=Guard(max_shrink=1))
    return pipeline


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    "zone",
    [PARIS, *(pytest.param(zone, marks=pytest.mark.slow) for zone in OTHER_ZONES)],
)
@pytest.mark.parametrize("night", [SPRING, AUTUMN])
def test_windows_of_time(windows: Pipeline, kind: str, zone: str, night: str):
    """Prevents: a window is cut by the wrong clock, and rows of its neighbours are deleted."""
    days = [str(date.fromisoformat(night) + timedelta(days=number)) for number in (-1, 0, 1)]
    hours = (0, 1, 2, 3, 22, 22.9)
    materialize(windows, {key: at(key, *hours, zone=zone, kind=kind) for key in days}, zone=zone)
    windows.run()
    again = {days[1]: at(days[1], 0, 2.5, 22.9, zone=zone, kind=kind)}
    materialize(windows, again, zone=zone)
    assert ships(windows) == RowCounts(deleted=6, inserted=3)


def test_partitions_come_and_go(windows: Pipeline):
    """Prevents: the rows of a partition that is no more stay published, or one that was written
    again is shipped although it is as before."""
    one, two, three, four = (f"2025-03-0{number}" for number in range(1, 5))
    materialize(windows, {key: at(key, 1, 2) for key in (one, two)}, zone=PARIS)
    windows.run()
    materialize(windows, {one: at(one, 1, 2)}, zone=PARIS)
    assert ships(windows) is None
    materialize(windows, {one: at(one, 1, 2), two: at(two, 3)}, zone=PARIS)
    assert ships(windows) == RowCounts(deleted=2, inserted=1)
    materialize(windows, {three: at(three, 1)}, zone=PARIS, without=[one])
    assert ships(windows) == RowCounts(deleted=2, inserted=1)
    materialize(windows, {four: at(four)}, zone=PARIS, without=[two])
    assert ships(windows) == RowCounts(deleted=1, inserted=0)


@pytest.mark.parametrize("is_null", [False, True], ids=["beside", "null"])
def test_rows_that_lie_in_no_window(windows: Pipeline, *, is_null: bool):
    """Prevents: a row that lies in another partition's window is deleted with it; one without a
    time is never shipped again."""
    one, two = "2025-03-01", "2025-03-02"
    lost = table([(None, 1.0)], at=pa.timestamp("us"), hour=pa.float64())
    stray = pa.concat_tables([at(one, 1), lost if is_null else at(two, 5)])
    materialize(windows, {one: stray, two: at(two, 6)}, zone=PARIS)
    windows.run()
    materialize(windows, {one: at(one, 1)}, zone=PARIS)
    shipped = ships(windows)
    assert shipped
    assert shipped.whole


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["it's", "ü"]),
    (pa.int32(), [1, -2]),
    (pa.bool_(), [True, False]),
    (pa.date32(), [date(2025, 3, 1), date(2025, 4, 1)]),
    (pa.timestamp("us"), [datetime(2025, 3, 1, 12), datetime(2025, 3, 1, 12, 0, 1)]),
]


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(("type_", "values"), VALUES, ids=str)
def test_partitions_by_value(pipeline: Pipeline, type_: pa.DataType, values: list[Any]):
    """Prevents: partitions by value need a time, or one value is taken for another."""
    pipeline.policy(Partitions("region"), guard=Guard(max_shrink=1))

    def sold(region: Any, *prices: int) -> pa.Table:
        return table([(region, price) for price in prices], region=type_, price=pa.int64())

    keys = {value: str(value).lower() if type_ == pa.bool_() else str(value) for value in values}
    first, second = values
    materialize(pipeline, {keys[value]: sold(value, 1, 2) for value in values})
    pipeline.run()
    materialize(pipeline, {keys[first]: sold(first, 1, 2, 3)})
    assert ships(pipeline) == RowCounts(deleted=2, inserted=3)
    materialize(pipeline, {}, without=[keys[second]])
    assert ships(pipeline) == RowCounts(deleted=2, inserted=0)


def test_model_that_was_not_partitioned(windows: Pipeline):
    """Prevents: the rows of a model from before it was partitioned stay published; a misspelt
    column shows as an error of hyperd."""
    windows.model("flights", at("2025-03-01", 1, 2))
    with pytest.raises(RefusedError, match='the model "flights" is not partitioned: give its'):
        windows.run()
    windows.policy(Replace())
    windows.run()
    windows.policy(Partitions("at"))
    materialize(windows, {"2025-03-01": at("2025-03-01", 1, 3)}, zone=PARIS)
    shipped = ships(windows)
    assert shipped
    assert shipped.whole == "its model was not partitioned at the last refresh"
    windows.policy(Partitions("att"))
    with pytest.raises(RefusedError, match='refresh: partitions: column names "att", but'):
        windows.run()


def visits(days: range, *, kind: str = "date", undated: bool = True) -> pa.Table:
    """One visit on each of the days, told by how long ago they are, and perhaps one without."""
    midnight = NOON.replace(hour=0)
    rows = [(-2 - back, moment(midnight - timedelta(days=back), kind), "a") for back in days]
    return table(
        [*rows, (0, None, "a")] if undated else rows,
        id=pa.int64(),
        day=TYPES[kind],
        part=pa.string(),
    )


def published(pipeline: Pipeline, *, after: int = 0) -> int:
    """How many rows are published once it was refreshed some days later."""
    pipeline.run(around={"now": NOON + timedelta(days=after)})
    assert pipeline.wrong() == []
    checkpoint = pipeline.journal.checkpoint()
    assert checkpoint
    return checkpoint.tables["flights"].content.rows


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_window_over_a_model_that_stands_still(pipeline: Pipeline, policy: Policy):
    """Prevents: rows stay for ever once nothing new comes, those without a day go with them, or
    those that a longer window or an earlier clock brings back never return."""
    pipeline.policy(policy, retain=Retain("day", 9), guard=LAX)
    if isinstance(policy, Partitions):
        materialize(pipeline, {"a": visits(range(20))})
    else:
        pipeline.model("flights", visits(range(20)))
    assert published(pipeline) == 11
    assert isinstance(pipeline.run(around={"now": NOON.replace(hour=23)}).plan, NoChange)
    moved = {"now": NOON + timedelta(days=4)}
    assert isinstance(pipeline.run(around=moved).plan, Update)
    assert isinstance(pipeline.run(around=moved).plan, NoChange)
    assert [published(pipeline, after=days) for days in (4, 400, 0)] == [7, 1, 11]
    for window, rows in ((Retain("day", 14), 16), (None, 21)):
        pipeline.policy(policy, retain=window)
        assert published(pipeline) == rows


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("as_of", ["run", "max"])
def test_edges_of_a_window(pipeline: Pipeline, kind: str, as_of: Any):
    """Prevents: the first or the last moment of the window falls on its other side."""
    pipeline.policy(Diff(("id",)), retain=Retain("day", 9, as_of), guard=LAX)
    pipeline.model("flights", visits(range(20), kind=kind))
    assert published(pipeline) == 11
    later = visits(range(-1, 20), kind=kind)
    shipped = ships(pipeline, later, now=NOON + timedelta(days=1))
    assert shipped == RowCounts(deleted=1, inserted=1)
    # Of an expired row, nobody sees a correction.
    assert ships(pipeline, visits(range(-1, 15), kind=kind), now=NOON + timedelta(days=1)) is None
    # A source that stands still does not empty its data source, if its own days count.
    assert published(pipeline, after=400) == (11 if as_of == "max" else 1)


@pytest.mark.slow
def test_nothing_to_count_from(pipeline: Pipeline):
    """Prevents: a table that is empty, or has no dates, has no window and cannot be refreshed."""
    pipeline.policy(Diff(("id",)), retain=Retain("day", 9, "max"), guard=LAX)
    empty = visits(range(0), undated=False)
    for rows, left in ((visits(range(0)), 1), (empty, 0), (visits(range(20)), 11)):
        pipeline.model("flights", rows)
        assert published(pipeline) == left


@pytest.mark.parametrize(("column", "phrase"), [("dya", 'names "dya"'), ("id", '"id" is bigint')])
def test_column_that_is_no_date(pipeline: Pipeline, column: str, phrase: str):
    """Prevents: a misspelt column shows as an error of hyperd, or numbers pass for days."""
    pipeline.policy(Replace(), retain=Retain(column, 9))
    pipeline.model("flights", visits(range(20)))
    with pytest.raises(RefusedError, match="retain") as caught:
        pipeline.run()
    assert phrase in str(caught.value)
