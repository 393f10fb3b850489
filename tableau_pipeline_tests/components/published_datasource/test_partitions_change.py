"""Models whose partitions change, as Dagster refreshes what depends on them."""

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from tableau_pipeline.core.declaration import Partitions, ReplaceAll, Table
from tableau_pipeline_tests.components.support.location import (
    MODEL,
    Location,
    decision,
    metadata_of,
)
from tableau_pipeline_tests.refresh.support.models import snapshot
from tableau_pipeline_tests.refresh.support.partitioned import day

FIRST = date(2026, 1, 4)  # a Sunday, on which Dagster's weeks begin
POLICIES = pytest.mark.parametrize(
    "policy",
    [pytest.param(ReplaceAll(), marks=pytest.mark.slow), Partitions("key")],
    ids=["whole", "delta"],
)


def rows(keys: Iterable[Any], *, value: int = 0) -> pa.Table:
    """Ten rows for each key."""
    keys = [key for key in keys for _ in range(10)]
    return pa.table({"key": keys, "value": pa.array([value] * len(keys), pa.int64())})


def days(first: date, number: int) -> list[date]:
    return [first + timedelta(days=each) for each in range(number)]


def write(location: Location, start: date, *, length: int, value: int = 0) -> None:
    """Store a day or a week of the model, and leave what else is stored."""
    snapshot(
        location.root,
        rows(days(start, length), value=value),
        asset_key=MODEL,
        partition=str(start),
        span=day(str(start), days=length),
    )


@pytest.mark.slow
@POLICIES
def test_days_that_become_weeks(location: Location, policy: Any):
    """Prevents: the rows of the days published beside those of the weeks, for ever."""
    declared = {"tables": (Table("flights", MODEL, policy=policy),)}
    location.partitions[MODEL] = dg.DailyPartitionsDefinition(str(FIRST))
    for each in days(FIRST, 14):
        write(location, each, length=1)
    assert metadata_of(location.refresh("weeks", declared=declared))["dagster/row_count"] == 140
    location.partitions[MODEL] = dg.WeeklyPartitionsDefinition(str(FIRST))
    for number, start in enumerate((FIRST, FIRST + timedelta(days=7)), start=1):
        write(location, start, length=7, value=number)
        found = metadata_of(location.refresh("weeks", declared=declared))
        assert found["dagster/row_count"] == number * 70
        assert location.wrong("weeks", declared) == []
    write(location, FIRST, length=7, value=3)
    assert location.refresh("weeks", declared=declared).success
    assert location.wrong("weeks", declared) == []
    assert decision(location.refresh("weeks", declared=declared)).startswith("no change")
