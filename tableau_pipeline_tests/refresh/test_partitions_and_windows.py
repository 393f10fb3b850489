"""The refresh policy `partitions`, and windows (`retain`) that move with the date."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Guard, Retain
from tableau_pipeline.core.policies import Append, Diff, Partitions, Policy, ReplaceAll
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline.hyper.types import ROW_HASH, Column
from tableau_pipeline.outcome import Check, by_check
from tableau_pipeline.refresh.decide import NoChange, UpdateTables
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.partitioned import day, keep_only, materialize
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import refused, ships, table

# In Paris, clocks skip an hour on the first of these days, and repeat an hour on the second day.
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
    "replace": ReplaceAll(),
    "append": Append("id"),
    "partitions": Partitions("part"),
}


def moment(instant: datetime, kind: str, zone: str = "UTC") -> Any:
    """Return an instant as a value of a type, by the clock of a zone."""
    local = instant.astimezone(ZoneInfo(zone))
    known = {"date": local.date(), "timestamp": instant}
    return known.get(kind, local.replace(tzinfo=None))


def at(key: str, *hours: float, zone: str = PARIS, kind: str = "timestamp_ntz") -> pa.Table:
    """Return rows of a day, one for each of `hours`, which count from the start of the day."""
    start = day(key, zone=zone).start.astimezone(UTC)
    rows = [(moment(start + timedelta(hours=hour), kind, zone), hour) for hour in hours]
    return table(rows, at=TYPES[kind], hour=pa.float64())


@pytest.fixture
def windows(pipeline: Pipeline) -> Pipeline:
    pipeline.policy(Partitions("at"), guard=Guard(max_shrink=1))
    return pipeline


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    "zone", [PARIS, *(pytest.param(zone, marks=pytest.mark.slow) for zone in OTHER_ZONES)]
)
@pytest.mark.parametrize("night", [SPRING, AUTUMN])
def test_windows_of_time(windows: Pipeline, kind: str, zone: str, night: str):
    """Prevents: a window follows the wrong time zone, and an update deletes rows of other days."""
    days = [str(date.fromisoformat(night) + timedelta(days=number)) for number in (-1, 0, 1)]
    hours = (0, 1, 2, 3, 22, 22.9)
    materialize(windows, {key: at(key, *hours, zone=zone, kind=kind) for key in days}, zone=zone)
    windows.run()
    again = {days[1]: at(days[1], 0, 2.5, 22.9, zone=zone, kind=kind)}
    materialize(windows, again, zone=zone)
    assert ships(windows) == RowCounts(deleted=6, inserted=3)


@pytest.mark.slow
def test_partitions_come_and_go(windows: Pipeline):
    """Prevents: rows of a removed partition stay, or an unchanged partition is shipped again."""
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


@pytest.mark.slow
@pytest.mark.parametrize("is_null", [False, True], ids=["beside", "null"])
def test_rows_that_lie_in_no_window(windows: Pipeline, *, is_null: bool):
    """Prevents: an update misses rows without a time, or with a time outside of their partition."""
    one, two = "2025-03-01", "2025-03-02"
    lost = table([(None, 1.0)], at=pa.timestamp("us"), hour=pa.float64())
    stray = pa.concat_tables([at(one, 1), lost if is_null else at(two, 5)])
    materialize(windows, {one: stray, two: at(two, 6)}, zone=PARIS)
    windows.run()
    materialize(windows, {one: at(one, 1)}, zone=PARIS)
    assert ships(windows).whole


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    ("type_", "written", "is_update"),
    [
        (pa.int32(), lambda key: int(key.replace("-", "")), True),
        (pa.int64(), lambda key: int(key.replace("-", "")), True),
        (pa.string(), lambda key: key, True),
        # In the next cases, the pipeline cannot read the values as days, so it sends no update.
        (pa.int32(), lambda key: int(key[-2:]), False),
        (pa.float64(), lambda key: float(key.replace("-", "")), False),
        (pa.bool_(), lambda key: key.endswith("1"), False),
    ],
    ids=["int", "bigint", "text", "day of a month", "double", "boolean"],
)
def test_days_as_other_types(
    windows: Pipeline, type_: pa.DataType, written: Callable[[str], Any], *, is_update: bool
):
    """Prevents: updates fail for star schemas whose days are keys such as 20240101."""

    def sold(key: str, *prices: int) -> pa.Table:
        return table([(written(key), price) for price in prices], at=type_, price=pa.int64())

    days = [f"2025-03-0{number}" for number in range(1, 5)]
    materialize(windows, {key: sold(key, 1, 2) for key in days}, zone=PARIS)
    windows.run()
    materialize(windows, {days[1]: sold(days[1], 1, 2, 3)}, zone=PARIS)
    found = ships(windows)
    if is_update:
        assert found == RowCounts(deleted=2, inserted=3)
    else:
        assert found is not None
        assert found.whole


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["it's", "ü"]),
    (pa.int32(), [1, -2]),
    (pa.bool_(), [True, False]),
    (pa.date32(), [date(2025, 3, 1), date(2025, 4, 1)]),
    (pa.timestamp("us"), [datetime(2025, 3, 1, 12), datetime(2025, 3, 1, 12, 0, 1)]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("type_", "values"), VALUES, ids=str)
def test_partitions_by_value(pipeline: Pipeline, type_: pa.DataType, values: list[Any]):
    """Prevents: partitions by value need a time, or an update confuses two values."""
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


@pytest.mark.slow
def test_model_that_was_not_partitioned(windows: Pipeline):
    """Prevents: rows of an unpartitioned model stay published after the model is partitioned."""
    windows.model("flights", at("2025-03-01", 1, 2))
    refused(windows.run, 'the model "flights" is not partitioned. Give its')
    windows.policy(ReplaceAll())
    windows.run()
    windows.policy(Partitions("at"))
    materialize(windows, {"2025-03-01": at("2025-03-01", 1, 3)}, zone=PARIS)
    assert ships(windows).whole == "its model was not partitioned at the last refresh"
    windows.policy(Partitions("att"))
    refused(windows.run, 'refresh: partitions: column names "att", but')


def visits(days: range) -> pa.Table:
    """Return one visit for each day, counted back from today, and one visit without a day."""
    today = NOON.date()
    rows = [(-2 - back, today - timedelta(days=back), "a") for back in days]
    return table([*rows, (0, None, "a")], id=pa.int64(), day=pa.date32(), part=pa.string())


def published(pipeline: Pipeline, *, after: int = 0) -> int:
    """Refresh `after` days later, and return the number of published rows."""
    report = pipeline.run(around={"now": NOON + timedelta(days=after)})
    assert pipeline.wrong() == []
    return report.checkpoint.tables["flights"].content.rows


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_window_over_a_model_that_stands_still(pipeline: Pipeline, policy: Policy):
    """Prevents: expired rows stay while a model is unchanged, or a longer window adds no rows."""
    pipeline.policy(policy, retain=Retain("day", 9), guard=LAX)
    if isinstance(policy, Partitions):
        materialize(pipeline, {"a": visits(range(20))})
    else:
        pipeline.model("flights", visits(range(20)))
    assert published(pipeline) == 11
    assert isinstance(pipeline.run(around={"now": NOON.replace(hour=23)}).plan, NoChange)
    moved = {"now": NOON + timedelta(days=4)}
    assert isinstance(pipeline.run(around=moved).plan, UpdateTables)
    assert isinstance(pipeline.run(around=moved).plan, NoChange)
    assert [published(pipeline, after=days) for days in (4, 400, 0)] == [7, 1, 11]
    for window, rows in ((Retain("day", 14), 16), (None, 21)):
        pipeline.policy(policy, retain=window)
        assert published(pipeline) == rows


@pytest.mark.parametrize(
    "type_", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")], ids=str
)
def test_window_that_begins_before_the_first_year(pipeline: Pipeline, type_: pa.DataType):
    """Prevents: a window over old dates fails, because it begins before the year 1."""
    pipeline.policy(Diff(("flight_id",)), retain=Retain("day", 400_000, "max"), guard=LAX)
    for count in (2, 3):
        days = pa.array([datetime(100 + number, 1, 1, tzinfo=UTC) for number in range(count)])
        pipeline.model("flights", flights(count, day=days.cast(type_)))
        pipeline.run()
        assert pipeline.wrong() == []


@pytest.mark.parametrize(("column", "phrase"), [("dya", 'names "dya"'), ("id", '"id" is bigint')])
def test_column_that_is_no_date(pipeline: Pipeline, column: str, phrase: str):
    """Prevents: `retain` with a misspelt column fails in hyperd, or treats numbers as days."""
    pipeline.policy(ReplaceAll(), retain=Retain(column, 9))
    pipeline.model("flights", visits(range(20)))
    refused(pipeline.run, "retain", phrase)


@pytest.mark.slow
def test_record_does_not_grow_with_the_partitions(pipeline: Pipeline):
    """Prevents: records list every partition, and grow until the journal is slow."""
    sizes = []
    for number in (2, 40):
        materialize(pipeline, {str(hour): flights(2) for hour in range(number)})
        pipeline.run()
        sizes.append(pipeline.journal.files()[-1].stat().st_size)
    assert max(sizes) - min(sizes) < 60


def test_partitions_that_differ_in_their_columns(pipeline: Pipeline):
    """Prevents: a partition that lacks a column is published, or a refusal hides other mistakes."""
    wider = flights(3, gate=pa.array([1, 2, 3], pa.int64()))
    materialize(pipeline, {"jan": flights(5), "feb": wider})
    pipeline.policy(ReplaceAll(), contract=(Column("seat", "string"),))
    differs = ('"flights"', "partition jan differs", "gate (bigint)", "Materialize jan")
    error = refused(pipeline.run, *differs)
    for part in ("partition jan differs", "seat (string) is missing"):
        assert part in by_check(error.refusals)[Check.SCHEMA]
    assert (pipeline.sessions, pipeline.extract_files()) == (0, [])


# A row has an id, an age in days (None: no date) and a word.
Row = tuple[int, int | None, str]


def remarks(rows: list[Row]) -> pa.Table:
    # No column names the partition, so two partitions may have equal rows.
    today = NOON.date()
    days = [(id_, None if ago is None else today - timedelta(days=ago), word)
            for id_, ago, word in rows]  # fmt: skip
    return table(days, id=pa.int64(), day=pa.date32(), word=pa.string())


@pytest.fixture
def parted(pipeline: Pipeline) -> Pipeline:
    """Publish a model of two partitions."""
    pipeline.policy(Diff(("id",)), guard=LAX)
    materialize(
        pipeline,
        {
            "north": remarks([(1, 0, "a"), (2, 9, "b"), (3, None, "c")]),
            "south": remarks([(4, 0, "d"), (5, 9, "e")]),
        },
    )
    pipeline.run(around={"now": NOON})
    return pipeline


@pytest.mark.slow
@pytest.mark.parametrize("retain", [None, Retain("day", 5)], ids=["all", "window"])
def test_shared_files_are_hardly_read(parted: Pipeline, retain: Retain | None):
    """Prevents: an update reads all files of a model although one partition has changed."""
    day = {"day"} if retain else set()
    parted.policy(Diff(("id",)), retain=retain, guard=LAX)
    parted.run(around={"now": NOON})
    keep_only(parted, "flights", part="north", columns={"id", ROW_HASH, *day})
    materialize(parted, {"south": remarks([(4, 0, "D"), (6, 1, "f")])})
    report = parted.run(around={"now": NOON})
    deleted = 1 if retain else 2  # the other row has expired
    assert report.tables == {"flights": RowCounts(deleted=deleted, inserted=2)}


@pytest.mark.slow
def test_a_key_that_a_shared_file_has_is_refused(parted: Pipeline):
    """Prevents: a new row with the key of another partition's row deletes that row."""
    materialize(parted, {"south": remarks([(1, 0, "x")])})
    refused(lambda: parted.run(around={"now": NOON}), "id is not unique: 1 value of it repeats")


def carriers(part: str, word: str, *codes: str) -> pa.Table:
    rows = [(code, word, part) for code in codes]
    return table(rows, carrier=pa.string(), word=pa.string(), part=pa.string())


def publish_in_parts(star: Pipeline, policy: Policy) -> None:
    """Publish a dimension that has two partitions."""
    many, one = star.declaration.tables
    star.declare(tables=(many, replace(one, policy=policy, guard=LAX)))
    for part, code in (("a", "AA"), ("b", "UA")):
        star.snapshot("airlines", carriers(part, "x", code), partition=part)
    star.run()


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("policy", [Diff(("carrier",)), Partitions("part")], ids=["diff", "parts"])
def test_a_key_that_another_partition_has(star: Pipeline, policy: Policy):
    """Prevents: a refresh checks keys in changed files only, and repeated keys double sums."""
    publish_in_parts(star, policy)
    star.snapshot("airlines", carriers("b", "x", "AA", "UA"), partition="b")
    refused(star.run, "carrier is not unique: 1 value of it repeats")
