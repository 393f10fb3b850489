"""Small pools of awkward values for each type, so that histories meet the same ones again."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

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

# Each grows with its number, and none repeats.
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
    """A value of the pool; number 0 is NULL."""
    pool = _POOLS[type_]
    return pool[number % len(pool)] if number else None


def growing(type_: str, number: int) -> Any:
    """The value of this number, for keys and cursors."""
    return _GROWING[type_](number)


def days_around(type_: str, number: int) -> Any:
    """A moment within some days of `NOON`, for rolling windows; number 0 is NULL."""
    if not number:
        return None
    moment = NOON.replace(hour=0) + timedelta(hours=12 * (number % 16 - 10))
    if type_ == "date":
        return moment.date()
    return moment if type_ == "timestamp" else moment.replace(tzinfo=None)


def published(value: Any) -> str:
    """A value as Tableau shows it, in short, so that NaN equals NaN."""
    match value:
        case datetime():
            return str(value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value)
        case date():
            return str(value)
        case Decimal():
            return f"{value}d"
        case float():
            # In a column that has both zeros, hyperd stores one of them.
            return repr(value + 0.0)
        case _:
            return repr(value)
