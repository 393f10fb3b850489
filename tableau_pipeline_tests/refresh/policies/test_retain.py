"""Windows that move over the rows of a table."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

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
from tableau_pipeline_tests.refresh.support.partitioned import materialize
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.shipping import ships, table

NOON = datetime(2026, 3, 30, 12, tzinfo=UTC)
LAX = Guard(min_rows=0, max_shrink=1)

At = Callable[[date], Any]
TYPES: dict[str, tuple[pa.DataType, At]] = {
    "date": (pa.date32(), lambda day: day),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        lambda day: datetime(day.year, day.month, day.day, tzinfo=UTC),
    ),
    "timestamp_ntz": (pa.timestamp("us"), lambda day: datetime(day.year, day.month, day.day)),
}
POLICIES: dict[str, Policy] = {
    "replace": Replace(),
    "diff": Diff(("id",)),
    "append": Append("id"),
    "partitions": Partitions("part"),
}


def ago(days: int) -> date:
    return NOON.date() - timedelta(days=days)


def visits(days: range, *, type_: str = "date", undated: bool = True) -> pa.Table:
    """One visit on each of the days, told by how long ago they are, and perhaps one without."""
    arrow, at = TYPES[type_]
    rows = [(-2 - back, at(ago(back)), "a") for back in days]
    return table(
        [*rows, (0, None, "a")] if undated else rows,
        id=pa.int64(),
        day=arrow,
        part=pa.string(),
    )


def give(pipeline: Pipeline, rows: pa.Table) -> None:
    if pipeline.declaration.tables[0].policy == POLICIES["partitions"]:
        materialize(pipeline, {"a": rows})
    else:
        pipeline.model("flights", rows)


@pytest.fixture(params=POLICIES)
def windowed(request: pytest.FixtureRequest, pipeline: Pipeline) -> Pipeline:
    """Ten of twenty days are published, under each of the policies."""
    pipeline.policy(POLICIES[request.param], retain=Retain("day", 9), guard=LAX)
    give(pipeline, visits(range(20)))
    pipeline.run(around={"now": NOON})
    assert published(pipeline) == 11
    return pipeline


def published(pipeline: Pipeline) -> int:
    assert pipeline.wrong() == []
    checkpoint = pipeline.journal.checkpoint()
    assert checkpoint
    return checkpoint.tables["flights"].content.rows


def on_day(pipeline: Pipeline, days: int) -> Any:
    return pipeline.run(around={"now": NOON + timedelta(days=days)})


@pytest.mark.few_variants(1)
def test_window_moves_over_a_model_that_stands_still(windowed: Pipeline):
    """Prevents: rows stay forever once nothing new comes, or those without a day go with them."""
    report = on_day(windowed, 4)
    assert isinstance(report.plan, Update)
    assert published(windowed) == 7
    assert isinstance(on_day(windowed, 4).plan, NoChange)
    on_day(windowed, 400)
    assert published(windowed) == 1


@pytest.mark.few_variants(1)
def test_window_of_the_same_day(windowed: Pipeline):
    """Prevents: two refreshes of a day ship the same rows twice."""
    opened = windowed.run(around={"now": NOON.replace(hour=23)})
    assert isinstance(opened.plan, NoChange)


@pytest.mark.few_variants(1)
def test_longer_window_brings_rows_back(windowed: Pipeline):
    """Prevents: rows that expired once never return, though the window is declared longer."""
    (only,) = windowed.declaration.tables
    windowed.policy(only.policy, retain=Retain("day", 14))
    windowed.run(around={"now": NOON})
    assert published(windowed) == 16
    windowed.policy(only.policy, retain=None)
    windowed.run(around={"now": NOON})
    assert published(windowed) == 21


@pytest.mark.few_variants(1)
def test_clock_that_goes_back(windowed: Pipeline):
    """Prevents: a refresh on a machine with another clock leaves a hole behind."""
    on_day(windowed, 4)
    on_day(windowed, 0)
    assert published(windowed) == 11


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("as_of", ["run", "max"])
def test_all_types(pipeline: Pipeline, type_: str, as_of: Any):
    """Prevents: the first or the last moment of the window falls on its other side."""
    pipeline.policy(Diff(("id",)), retain=Retain("day", 9, as_of), guard=LAX)
    pipeline.model("flights", visits(range(20), type_=type_))
    pipeline.run(around={"now": NOON})
    assert published(pipeline) == 11
    later = visits(range(-1, 20), type_=type_)
    shipped = ships(pipeline, later, now=NOON + timedelta(days=1))
    assert shipped == RowCounts(deleted=1, inserted=1)
    assert published(pipeline) == 11


def test_latest_value_counts_not_the_day(pipeline: Pipeline):
    """Prevents: a source that stands still empties its data source."""
    pipeline.policy(Diff(("id",)), retain=Retain("day", 9, "max"), guard=LAX)
    pipeline.model("flights", visits(range(20)))
    pipeline.run(around={"now": NOON})
    assert isinstance(on_day(pipeline, 400).plan, NoChange)
    assert published(pipeline) == 11


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("as_of", ["max", "run"])
@pytest.mark.slow
def test_nothing_to_count_from(pipeline: Pipeline, as_of: Any):
    """Prevents: a table that is empty, or has no dates, has no window and cannot be refreshed."""
    pipeline.policy(Diff(("id",)), retain=Retain("day", 9, as_of), guard=LAX)
    pipeline.model("flights", visits(range(0)))
    pipeline.run(around={"now": NOON})
    assert published(pipeline) == 1
    pipeline.model("flights", visits(range(0), undated=False))
    pipeline.run(around={"now": NOON})
    assert published(pipeline) == 0
    pipeline.model("flights", visits(range(20)))
    pipeline.run(around={"now": NOON})
    assert published(pipeline) == 11


def test_correction_of_an_expired_row_is_no_change(pipeline: Pipeline):
    """Prevents: changes of rows that nobody sees are shipped."""
    pipeline.policy(Diff(("id",)), retain=Retain("day", 9), guard=LAX)
    pipeline.model("flights", visits(range(20)))
    pipeline.run(around={"now": NOON})
    assert ships(pipeline, visits(range(15)), now=NOON) is None


@pytest.mark.parametrize(
    ("column", "phrase"),
    [("dya", 'names "dya"'), ("id", '"id" is bigint')],
)
def test_column_that_is_no_date(pipeline: Pipeline, column: str, phrase: str):
    """Prevents: a misspelt column shows as an error of hyperd, or numbers pass for days."""
    pipeline.policy(Replace(), retain=Retain(column, 9))
    pipeline.model("flights", visits(range(20)))
    with pytest.raises(RefusedError, match="retain") as caught:
        pipeline.run()
    assert phrase in str(caught.value)
