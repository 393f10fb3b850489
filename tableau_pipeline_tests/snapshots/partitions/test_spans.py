from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from pydantic import ValidationError
from pyspark.sql import SparkSession

from tableau_pipeline.core.snapshot import Span
from tableau_pipeline_tests.snapshots.support.samples import newest, store_partitions

PARIS = "Europe/Paris"
DAYS = dg.DailyPartitionsDefinition("2026-10-20", timezone=PARIS)
HOURS = dg.HourlyPartitionsDefinition("2026-10-25-00:00", timezone=PARIS)
UTC_DAYS = dg.DailyPartitionsDefinition("2026-10-20")


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("definition", "keys", "edges", "zone"),
    [
        # The clocks of Paris go back at 1:00 UTC on the 25th.
        (DAYS, ["2026-10-25"], [("2026-10-24 22:00", "2026-10-25 23:00")], PARIS),
        (
            HOURS,
            ["2026-10-25-02:00", "2026-10-25-02:00+0100"],
            [("2026-10-25 00:00", "2026-10-25 01:00"), ("2026-10-25 01:00", "2026-10-25 02:00")],
            PARIS,
        ),
        (UTC_DAYS, ["2026-10-25"], [("2026-10-25 00:00", "2026-10-26 00:00")], "UTC"),
    ],
    ids=["a day of 25 hours", "the hour that comes twice", "UTC"],
)
def test_a_partition_by_time_knows_its_span(
    spark: SparkSession,
    tmp_path: Path,
    definition: dg.TimeWindowPartitionsDefinition,
    keys: list[str],
    edges: list[tuple[str, str]],
    zone: str,
):
    # Prevents: a window that is deleted from a table an hour too short, too long or too late.
    windows = {key: definition.time_window_for_partition_key(key) for key in keys}
    written = store_partitions(
        spark.sql("SELECT TIMESTAMP '2026-10-25 00:30:00Z' AS at"),
        tmp_path,
        "at",
        {
            key: Span(start=window.start, end=window.end, zone=zone)
            for key, window in windows.items()
        },
    )
    assert [each.span for each in written.parts] == [
        Span(start=instant(start), end=instant(end), zone=zone) for start, end in edges
    ]
    assert newest(tmp_path) == written


def test_a_partition_of_a_fixed_list_has_no_span(spark: SparkSession, tmp_path: Path):
    # Prevents: a key taken for a time.
    written = store_partitions(
        spark.sql("SELECT '2026-10-25' AS key"), tmp_path, "key", ["2026-10-25"]
    )
    assert [part.span for part in written.parts] == [None]
    assert newest(tmp_path) == written


@pytest.mark.parametrize("zone", [PARIS, "Asia/Kathmandu", "America/St_Johns"])
@pytest.mark.parametrize("fold", [0, 1])
def test_instants_survive_json(zone: str, fold: int):
    # Prevents: a manifest whose window is not quite that of the write, or no longer equal to it.
    start = datetime(2026, 10, 25, 2, 30, 0, 1, tzinfo=ZoneInfo(zone), fold=fold)
    span = Span(start=start, end=start.astimezone(UTC) + timedelta(microseconds=1), zone=zone)
    read = Span.model_validate_json(span.model_dump_json())
    assert read == span
    assert read.start.timestamp() == start.timestamp()
    assert read.end - read.start == timedelta(microseconds=1)


def test_a_time_without_a_zone_is_no_edge():
    # Prevents: a window that means another time on another machine.
    with pytest.raises(ValidationError, match="timezone"):
        Span(start=datetime(2026, 1, 1), end=instant("2026-01-02"), zone="UTC")
