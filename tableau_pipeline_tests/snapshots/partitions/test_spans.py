from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from tableau_pipeline.core.snapshot import Span

PARIS = "Europe/Paris"


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


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
