"""Partitions of models: a fixed list of values, or windows of time."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from tableau_pipeline.core.snapshot import Span
from tableau_pipeline_tests.refresh.stateful.models.values import growing

_COUNT = 5
_TEXTS = {"boolean": lambda value: str(value).lower(), "timestamp": lambda value: f"{value:%F %T}"}


class Partitioning:
    """How the rows of a model are split by their column "part"."""

    type: str
    keys: tuple[str, ...]

    def value(self, number: int) -> Any:
        """A value that lies in one of the partitions."""
        raise NotImplementedError

    def key(self, value: Any) -> str:
        """The partition of a value."""
        raise NotImplementedError

    def span(self, key: str) -> Span | None:
        """The time that a partition covers, if it does."""
        raise NotImplementedError


@dataclass(frozen=True)
class ByValue(Partitioning):
    """A partition for each of a few values of some type."""

    type: str

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.key(growing(self.type, n)) for n in range(_COUNT)))

    def value(self, number: int) -> Any:
        return growing(self.type, number % _COUNT)

    def key(self, value: Any) -> str:
        return _TEXTS.get(self.type, str)(value)

    def span(self, key: str) -> None:
        return None


@dataclass(frozen=True)
class ByTime(Partitioning):
    """Windows of some days or hours by the clock of a zone, around the day the clocks change."""

    type: str
    zone: str = "UTC"
    hours: int = 24
    days: int = 1

    @cached_property
    def windows(self) -> dict[str, tuple[datetime, datetime]]:
        zone = ZoneInfo(self.zone)
        if self.hours == 24:
            first, count = datetime(2025, 3, 28), -(-_COUNT // self.days)
            days = [first + timedelta(days=n * self.days) for n in range(count + 1)]
            edges = [day.replace(tzinfo=zone) for day in days]
        else:
            first = datetime(2025, 3, 30, tzinfo=UTC)
            edges = [(first + timedelta(hours=n * self.hours)) for n in range(_COUNT + 1)]
            edges = [edge.astimezone(zone) for edge in edges]
        return {f"{start:%Y-%m-%d-%H:%M%z}": (start, end) for start, end in pairwise(edges)}

    @cached_property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.windows)

    def value(self, number: int) -> Any:
        """At the beginning of a window, or some time within it."""
        start, _ = list(replace(self, days=1).windows.values())[number % _COUNT]
        if self.type == "date":
            return start.date()
        inside = timedelta(seconds=(number % 3) * self.hours * 1000, microseconds=number % 2)
        if self.type == "timestamp":
            return start.astimezone(UTC) + inside
        return start.replace(tzinfo=None) + inside

    def key(self, value: Any) -> str:
        """By the calendar of the zone, except for instants."""
        for key, (start, end) in self.windows.items():
            if isinstance(value, datetime) and value.tzinfo:
                if start.astimezone(UTC) <= value < end.astimezone(UTC):
                    return key
            elif isinstance(value, datetime):
                if start.replace(tzinfo=None) <= value < end.replace(tzinfo=None):
                    return key
            elif start.date() <= value < end.date():
                return key
        raise ValueError(f"{value} lies in none of {self.windows}")

    def span(self, key: str) -> Span:
        start, end = self.windows[key]
        return Span(start=start, end=end, zone=self.zone)


ALL: tuple[Partitioning, ...] = (
    *(ByValue(type_) for type_ in ("string", "int", "boolean", "date", "decimal(10,2)")),
    *(
        ByTime(type_, zone)
        for type_ in ("date", "timestamp", "timestamp_ntz")
        for zone in ("UTC", "Europe/Paris", "America/New_York")
    ),
    ByTime("timestamp", "Europe/Paris", hours=1),
)
