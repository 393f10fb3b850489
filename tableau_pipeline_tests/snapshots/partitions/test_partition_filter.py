import time
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from tableau_pipeline.core.snapshot import Fingerprint, Part, Span
from tableau_pipeline.resources.snapshots import partition_filter

DAYS = dg.DailyPartitionsDefinition("2025-01-01")
WEEKS = dg.WeeklyPartitionsDefinition("2025-01-01")


def part(key: str | None, definition: dg.PartitionsDefinition | None = None) -> Part:
    """A part as it was stored under a definition."""
    span = None
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        window = definition.time_window_for_partition_key(str(key))
        span = Span(start=window.start, end=window.end, zone=definition.timezone)
    none = Fingerprint(rows=0, hash_sum=0)
    return Part(partition=key, span=span, version=1, fingerprint=none, files=())


@pytest.mark.parametrize(
    ("key", "before", "now", "belongs"),
    [
        ("2025-01-05", DAYS, DAYS, True),
        ("2025-01-05", WEEKS, WEEKS, True),
        ("2025-01-05", DAYS, WEEKS, False),
        ("2025-01-05", WEEKS, DAYS, False),
        ("2025-01-06", DAYS, WEEKS, False),
        ("2025-01-05", DAYS, dg.DailyPartitionsDefinition("2025-01-05"), True),
        ("2025-01-05", DAYS, dg.DailyPartitionsDefinition("2025-01-06"), False),
        ("2025-01-05", DAYS, dg.DailyPartitionsDefinition("2025-01-01", end_date="2025-01-05"),
         False),
        ("2025-01-05", DAYS, dg.DailyPartitionsDefinition("2025-01-01", timezone="Asia/Tokyo"),
         False),
        ("2025-01-05", DAYS, dg.DailyPartitionsDefinition("2025-01-01", timezone="Etc/UTC"), True),
        ("2025-01-05", DAYS, dg.DailyPartitionsDefinition("2025-01-01", hour_offset=6), False),
        ("2025-01-05", DAYS, dg.HourlyPartitionsDefinition("2025-01-01-00:00"), False),
        ("2025-01-05", DAYS, dg.MonthlyPartitionsDefinition("2025-01-01"), False),
        ("2025-01-05", DAYS, dg.StaticPartitionsDefinition(["2025-01-05"]), False),
        ("2025-01-05", None, DAYS, False),
        ("x", None, DAYS, False),
        (None, None, DAYS, False),
        ("a", None, dg.StaticPartitionsDefinition(["a", "b"]), True),
        ("c", None, dg.StaticPartitionsDefinition(["a", "b"]), False),
        (None, None, dg.StaticPartitionsDefinition(["a", "b"]), False),
        ("c", None, dg.DynamicPartitionsDefinition(name="x"), True),
        ("2025-01-05", DAYS, None, True),
        (None, None, None, True),
    ],
)  # fmt: skip
def test_key_and_window_count(
    key: str | None,
    before: dg.PartitionsDefinition | None,
    now: dg.PartitionsDefinition | None,
    belongs: bool,
):
    """Prevents: days that pass for weeks, or a key that was dropped and whose rows stay."""
    assert partition_filter(now)(part(key, before)) == belongs


def test_excluded_windows():
    """Prevents: a day that was excluded from the partitions and whose rows stay."""
    cron = {"start": "2025-01-01", "fmt": "%Y-%m-%d", "cron_schedule": "0 0 * * *"}
    definition = dg.TimeWindowPartitionsDefinition(**cron, exclusions=["0 0 * * 0"])
    sunday, monday = part("2025-01-05", DAYS), part("2025-01-06", DAYS)
    assert [partition_filter(definition)(each) for each in (sunday, monday)] == [False, True]


def test_a_clock_that_is_behind_loses_nothing():
    """Prevents: a partition that another worker has just stored, dropped as not yet ended."""
    stored = part("2025-03-01", DAYS)
    with dg.partition_loading_context(effective_dt=datetime(2025, 3, 1, 23, 57, tzinfo=UTC)):
        assert not DAYS.has_partition_key("2025-03-01")
        assert partition_filter(DAYS)(stored)


def test_hours_over_the_change_of_clocks():
    """Prevents: the hour that comes twice dropped, or windows of a strange zone."""
    for zone, day in (("Europe/Paris", "2026-10-25"), ("Australia/Lord_Howe", "2026-10-04")):
        hours = dg.HourlyPartitionsDefinition(f"{day}-00:00", timezone=zone)
        at = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=2)
        keys = hours.get_partition_keys(current_time=at)
        parts = [part(key, hours) for key in keys]
        assert len(parts) > 24
        assert all(map(partition_filter(hours), parts))


@pytest.mark.slow
def test_three_years_of_hours():
    """Prevents: a write of one hour that spends seconds on looking at all the others."""
    hours = dg.HourlyPartitionsDefinition("2023-01-01-00:00", timezone="Europe/Paris")
    keys = hours.get_partition_keys(current_time=datetime(2026, 1, 1, tzinfo=UTC))
    windows = hours.time_windows_for_partition_keys(frozenset(keys), validate=False)
    one = part(keys[0], hours)
    parts = [
        one.model_copy(
            update={"partition": key, "span": Span(start=w.start, end=w.end, zone="Europe/Paris")}
        )
        for key, w in zip(keys, windows, strict=True)
    ]
    started = time.process_time()
    assert all(map(partition_filter(hours), parts))
    assert time.process_time() - started < 2
    assert len(parts) > 26_000
