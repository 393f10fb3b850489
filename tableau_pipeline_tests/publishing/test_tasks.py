"""The times of Tableau's schedules as cron expressions."""

from datetime import time

import pytest

from tableau_pipeline.publishing.tasks import cron_of

EVERY_DAY = [("hours", "24")]


@pytest.mark.parametrize(
    ("start", "end", "intervals", "cron"),
    [
        (time(6, 30), None, [], "30 6 * * *"),
        (time(6), time(6), [*EVERY_DAY, ("weekDay", "Monday")], "0 6 * * MON"),
        (time(8), time(20), [("hours", "4"), ("weekDay", "Sunday")], "0 8,12,16,20 * * SUN"),
        (time(8), time(10), [("minutes", "15")], "0,15,30,45 8,9 * * *"),
        (time(3, 20), time(3, 20), [("hours", "1")], "20 * * * *"),
        (time(3, 20), None, [("hours", "8")], "20 3,11,19 * * *"),
        (time(22), time(2), [("hours", "2")], "0 0,2,22 * * *"),
        (time(23), None, [("monthDay", "1"), ("monthDay", "LastDay")], "0 23 1,L * *"),
        (time(6), None, [("monthDay", "First"), ("weekDay", "Monday")], None),
        (time(6), time(18), [("minutes", "45")], None),
    ],
)
def test_cron(start: time, end: time | None, intervals: list[tuple[str, str]], cron: str | None):
    """Prevents: a data source that is refreshed at other times than before its adoption."""
    assert cron_of(start, end, intervals)[0] == cron
