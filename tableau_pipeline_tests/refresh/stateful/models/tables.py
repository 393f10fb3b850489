"""The models of a history: their columns, rows and partitions, and all values that occur."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from tableau_pipeline.core.snapshot import Span

# The last Sunday of March: Europe's clocks skip an hour.
NOON = datetime(2025, 3, 30, 12, tzinfo=UTC)
_FINE = timedelta(hours=7, microseconds=1)
_EDGE = Decimal("999999999999999999.9999")

ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(22,4)": pa.decimal128(22, 4),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
TYPES = tuple(ARROW)
MOMENTS = ("date", "timestamp", "timestamp_ntz")
KEYS = tuple(type_ for type_ in TYPES if type_ != "boolean")

_POOLS: dict[str, list[Any]] = {
    "boolean": [False, True],
    "int": [0, 1, -1, 2**31 - 1, -(2**31)],
    "bigint": [0, 1, -1, 2**63 - 1, -(2**63)],
    "double": [0.0, -0.0, 0.1, float("nan"), float("inf"), -1.5],
    "decimal(10,2)": [Decimal("0.00"), Decimal("0.10"), Decimal("-99999999.99")],
    "decimal(22,4)": [Decimal("0.0000"), _EDGE, -_EDGE],
    "string": ["", "a", "A", "a ", 'it\'s "ä" \\', "\x00", "NULL"],
    "date": [date(1, 1, 1), date(9999, 12, 31), NOON.date()],
    "timestamp": [NOON, NOON + timedelta(microseconds=1), datetime(1900, 1, 1, tzinfo=UTC)],
    "timestamp_ntz": [datetime(2025, 3, 30, 2, 30), datetime(9999, 12, 31, 23, 59, 59, 999999)],
}

# Values that grow with a number and never repeat, except for the two booleans.
_GROWING: dict[str, Callable[[int], Any]] = {
    "boolean": lambda n: n % 2 == 1,
    "int": lambda n: n - 2,
    "bigint": lambda n: 2**53 + n,
    "double": lambda n: (n - 2) / 10,
    "decimal(10,2)": lambda n: Decimal(n - 2).scaleb(-2),
    "decimal(22,4)": lambda n: Decimal(10**17) + Decimal(n).scaleb(-4),
    "string": lambda n: f"{n:02} 'k'",
    "date": lambda n: NOON.date() + timedelta(days=n - 6),
    "timestamp": lambda n: NOON + (n - 6) * _FINE,
    "timestamp_ntz": lambda n: NOON.replace(tzinfo=None) + (n - 6) * _FINE,
}


def any_value(type_: str, number: int) -> Any:
    """A value of the pool of a type. Number 0 is NULL."""
    pool = _POOLS[type_]
    return pool[number % len(pool)] if number else None


def growing(type_: str, number: int) -> Any:
    """The value for a number, in keys and cursors."""
    return _GROWING[type_](number)


def days_around(type_: str, number: int) -> Any:
    """A moment within a few days of `NOON`, for rolling windows. Number 0 is NULL."""
    if not number:
        return None
    moment = NOON.replace(hour=0) + timedelta(hours=12 * (number % 16 - 10))
    if type_ == "date":
        return moment.date()
    return moment if type_ == "timestamp" else moment.replace(tzinfo=None)


def as_text(value: Any) -> str:
    """A value as text, so that published and expected values can be compared, even NaN."""
    match value:
        case datetime():
            return str(value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value)
        case date():
            return str(value)
        case Decimal():
            return f"{value}d"
        case float():
            # In a column with 0.0 and -0.0, hyperd stores only one of them. So -0.0 becomes 0.0.
            return repr(value + 0.0)
        case _:
            return repr(value)


_COUNT = 5
_TEXTS = {"boolean": lambda value: str(value).lower(), "timestamp": lambda value: f"{value:%F %T}"}


@dataclass(frozen=True)
class ByValue:
    """One partition for each of a few values."""

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
class ByTime:
    """Windows of days or hours by the clock of a zone, around the day when the clocks change."""

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
        """The beginning of a window, or a time within the window."""
        start, _ = list(replace(self, days=1).windows.values())[number % _COUNT]
        if self.type == "date":
            return start.date()
        inside = timedelta(seconds=(number % 3) * self.hours * 1000, microseconds=number % 2)
        if self.type == "timestamp":
            return start.astimezone(UTC) + inside
        return start.replace(tzinfo=None) + inside

    def key(self, value: Any) -> str:
        """The window of a value. A timestamp is an instant; other values follow the zone."""
        for key, (start, end) in self.windows.items():
            if isinstance(value, datetime) and value.tzinfo:
                if start.astimezone(UTC) <= value < end.astimezone(UTC):
                    return key
            elif isinstance(value, datetime):
                if start.replace(tzinfo=None) <= value < end.replace(tzinfo=None):
                    return key
            elif start.date() <= value < end.date():
                return key
        raise ValueError(f"{value} is in none of {self.windows}")

    def span(self, key: str) -> Span:
        start, end = self.windows[key]
        return Span(start=start, end=end, zone=self.zone)


# How the rows of a model are split by their column "part".
Partitioning = ByValue | ByTime
PARTITIONINGS: tuple[Partitioning, ...] = (
    *(ByValue(type_) for type_ in ("string", "int", "boolean", "date", "decimal(10,2)")),
    *(
        ByTime(type_, zone)
        for type_ in ("date", "timestamp", "timestamp_ntz")
        for zone in ("UTC", "Europe/Paris", "America/New_York")
    ),
    ByTime("timestamp", "Europe/Paris", hours=1),
)


MOST_ROWS = 12


@dataclass(frozen=True)
class Col:
    """A column.

    Attributes:
        role: the kind of its values. "key" and "cursor" grow with the slot of a row; "part" is
            its partition; "reference" is a key of another table; "moment" is within a few
            days of `NOON`; "value" is anything, also NULL.
        step: how many consecutive slots share a value of a growing column.
        cycle: the number of values after which a growing column begins again; 0 for never.
    """

    name: str
    type: str
    role: str = "value"
    step: int = 1
    cycle: int = 0

    def value(self, slot: int, number: int, partitioning: Partitioning | None) -> Any:
        match self.role:
            case "key" | "cursor":
                number = slot // self.step
                return growing(self.type, number % self.cycle if self.cycle else number)
            case "reference":
                return growing(self.type, number - 1) if number else None
            case "moment":
                return days_around(self.type, number)
            case "part" if partitioning:
                return partitioning.value(number)
            case _:
                return any_value(self.type, number)


@dataclass(frozen=True)
class Row:
    """A row, and its slot: the number from which its keys and cursors are made."""

    slot: int
    values: tuple


@dataclass(frozen=True)
class Content:
    """All rows of a model at one time.

    Attributes:
        stale: the partition that still has former columns; None if every partition is current.
        gone: partitions that were never written, or that were removed.
    """

    columns: tuple[Col, ...]
    rows: tuple[Row, ...] = ()
    stale: str | None = None
    gone: frozenset[str] = frozenset()

    def index(self, column: str) -> int:
        return [col.name for col in self.columns].index(column)

    def column(self, column: str) -> list[Any]:
        at = self.index(column)
        return [row.values[at] for row in self.rows]

    def tuples(self, columns: Sequence[str]) -> list[tuple]:
        return list(zip(*(self.column(name) for name in columns), strict=True))

    def where(self, keep: Iterable[bool]) -> "Content":
        rows = tuple(row for row, stays in zip(self.rows, keep, strict=True) if stays)
        return replace(self, rows=rows)

    @property
    def schema(self) -> dict[str, str]:
        return {column.name: column.type for column in self.columns}


@dataclass
class Model:
    """A model of a table over time.

    Attributes:
        past: its earlier contents, the latest last.
        changed_keys: the keys of all rows that ever changed.
        last_changed_keys: the keys of the rows that the last change changed.
    """

    name: str
    content: Content
    partitioning: Partitioning | None
    keys: tuple[str, ...]
    past: list[Content] = field(default_factory=list)
    changed_keys: set[tuple] = field(default_factory=set)
    last_changed_keys: set[tuple] = field(default_factory=set)

    def become(self, content: Content) -> None:
        """Take new content. A removed partition comes back if the content has rows for it."""
        if self.partitioning:
            filled = {self.partitioning.key(value) for value in content.column("part")}
            gone = content.gone - filled
            present = set(self.partitioning.keys) - gone
            # A stale partition must differ from other partitions, so there must be others.
            stale = content.stale if content.stale in present and len(present) > 1 else None
            content = replace(content, gone=gone, stale=stale)
        self.past.append(self.content)
        old = _by_key(self.content, self.keys)
        new = _by_key(content, self.keys)
        self.last_changed_keys = {
            key for key in old.keys() | new.keys() if old.get(key) != new.get(key)
        }
        self.changed_keys |= self.last_changed_keys
        self.content = content

    def parts(self) -> Mapping[str | None, Content]:
        """The content by partition. A model without partitions has the single key None."""
        if self.partitioning is None:
            return {None: self.content}
        column = self.content.column("part")
        return {
            key: self.content.where([self.partitioning.key(value) == key for value in column])
            for key in self.partitioning.keys
            if key not in self.content.gone
        }


def _by_key(content: Content, keys: Sequence[str]) -> dict[tuple, list[str]]:
    rows_by_key: dict[tuple, list[str]] = {}
    for row, key in zip(content.rows, content.tuples(keys), strict=True):
        rows_by_key.setdefault(key, []).append(repr(row.values))
    return {key: sorted(rows) for key, rows in rows_by_key.items()}
