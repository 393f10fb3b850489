from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Guard, Partitions, Replace
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.extracts.delta import RowCounts
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.partitioned import day, materialize
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import ships, table

# Clocks in Paris go from 2:00 to 3:00 on the first of these nights, and back on the second.
SPRING, AUTUMN = "2025-03-30", "2025-10-26"
PARIS = "Europe/Paris"
OTHER_ZONES = ("UTC", "America/St_Johns", "Pacific/Apia")


def at(key: str, *hours: float, zone: str = PARIS, kind: str = "timestamp_ntz") -> pa.Table:
    """Rows of a day, at these hours since its beginning: as they really pass."""
    types = {
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    rows = []
    for hour in hours:
        instant = day(key, zone=zone).start.astimezone(UTC) + timedelta(hours=hour)
        local = instant.astimezone(ZoneInfo(zone))
        value: Any = {"date": local.date(), "timestamp": instant}.get(
            kind, local.replace(tzinfo=None)
        )
        rows.append((value, hour))
    return table(rows, at=types[kind], hour=pa.float64())


@pytest.fixture
def windows(pipeline: Pipeline) -> Pipeline:
    pipeline.policy(Partitions("at"), guard=Guard(max_shrink=1))
    return pipeline


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
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


@pytest.mark.slow
def test_partition_that_did_not_change(windows: Pipeline):
    """Prevents: a partition that was materialized again is shipped although it is as before."""
    materialize(windows, {"2025-03-01": at("2025-03-01", 1), "2025-03-02": at("2025-03-02", 2)},
                zone=PARIS)  # fmt: skip
    windows.run()
    materialize(windows, {"2025-03-01": at("2025-03-01", 1)}, zone=PARIS)
    assert ships(windows) is None
    materialize(windows, {"2025-03-01": at("2025-03-01", 1), "2025-03-02": at("2025-03-02", 3)},
                zone=PARIS)  # fmt: skip
    assert ships(windows) == RowCounts(deleted=1, inserted=1)


@pytest.mark.slow
def test_new_and_vanished_partitions(windows: Pipeline):
    """Prevents: the rows of a partition that is no more stay published."""
    days = [f"2025-03-{number:02}" for number in range(1, 7)]
    materialize(windows, {key: at(key, 1, 2) for key in days[:4]}, zone=PARIS)
    windows.run()
    materialize(windows, {days[4]: at(days[4], 1)}, zone=PARIS, without=days[1:3])
    assert ships(windows) == RowCounts(deleted=4, inserted=1)
    materialize(windows, {days[5]: at(days[5])}, zone=PARIS, without=[days[0]])
    assert ships(windows) == RowCounts(deleted=2, inserted=0)


def test_rows_beside_the_windows(windows: Pipeline):
    """Prevents: a row that lies in another partition's window is deleted with it."""
    days = ["2025-03-01", "2025-03-02"]
    stray = pa.concat_tables([at(days[0], 1), at(days[1], 5)])
    materialize(windows, {days[0]: stray, days[1]: at(days[1], 6)}, zone=PARIS)
    windows.run()
    materialize(windows, {days[0]: at(days[0], 1)}, zone=PARIS)
    shipped = ships(windows)
    assert shipped is not None
    assert (shipped.whole or "").startswith("rows changed beyond those")


def test_null_in_a_partition(windows: Pipeline):
    """Prevents: rows without a time are never shipped again."""
    lost = table([(None, 1.0), (None, 2.0)], at=pa.timestamp("us"), hour=pa.float64())
    materialize(windows, {"2025-03-01": pa.concat_tables([at("2025-03-01", 1), lost])}, zone="UTC")
    windows.run()
    materialize(windows, {"2025-03-01": at("2025-03-01", 1, zone="UTC")}, zone="UTC")
    shipped = ships(windows)
    assert shipped is not None
    assert shipped.whole


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["EU", "it's", "ü"]),
    (pa.int32(), [1, -2, 300]),
    (pa.bool_(), [True, False]),
    (pa.date32(), [date(2025, 3, 1), date(2025, 4, 1)]),
    (pa.timestamp("us"), [datetime(2025, 3, 1, 12), datetime(2025, 3, 1, 12, 0, 1)]),
]


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(("type_", "values"), VALUES, ids=str)
@pytest.mark.slow
def test_values(new_pipeline: Callable[..., Pipeline], type_: pa.DataType, values: list[Any]):
    """Prevents: partitions by value need a time, or one value is taken for another."""
    pipeline = new_pipeline()
    pipeline.policy(Partitions("region"), guard=Guard(max_shrink=1))

    def sold(region: Any, *prices: int) -> pa.Table:
        return table([(region, price) for price in prices], region=type_, price=pa.int64())

    keys = {value: str(value).lower() if type_ == pa.bool_() else str(value) for value in values}
    materialize(pipeline, {keys[value]: sold(value, 1, 2) for value in values})
    pipeline.run()
    first, second, *_ = values
    materialize(pipeline, {keys[first]: sold(first, 1, 2, 3)})
    assert ships(pipeline) == RowCounts(deleted=2, inserted=3)
    materialize(pipeline, {}, without=[keys[second]])
    assert ships(pipeline) == RowCounts(deleted=2, inserted=0)


@pytest.mark.slow
def test_model_that_was_not_partitioned(windows: Pipeline):
    """Prevents: the rows of a model from before it was partitioned stay published."""
    windows.model("flights", at("2025-03-01", 1, 2))
    windows.policy(Partitions("at"))
    with pytest.raises(RefusedError, match='the model "flights" is not partitioned: give its'):
        windows.run()
    windows.policy(Replace())
    windows.run()
    windows.policy(Partitions("at"))
    materialize(windows, {"2025-03-01": at("2025-03-01", 1, 3)}, zone=PARIS)
    shipped = ships(windows)
    assert shipped is not None
    assert shipped.whole == "its model was not partitioned at the last refresh"


def test_column_that_the_model_lacks(windows: Pipeline):
    """Prevents: a misspelt column shows as an error of hyperd."""
    materialize(windows, {"x": flights()})
    with pytest.raises(RefusedError, match='refresh: partitions: column names "at", but'):
        windows.run()
