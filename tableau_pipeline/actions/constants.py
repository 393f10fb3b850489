"""Constants in conditions, represented exactly or refused."""

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum

from tableau_pipeline.actions.names import checked_text
from tableau_pipeline.errors import BatchError

Value = bool | int | float | str | datetime

_BEYOND = 1 << 63
_REMEDY = "put the values into a small table of the payload, and compare with its column"


class ConstantType(StrEnum):
    """The types that a constant can have."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    DOUBLE = "double"
    STRING = "string"
    DATETIME = "datetime"


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant as it is sent; `text` is None for NULL, which fits any type."""

    type: ConstantType
    text: str | None

    def __str__(self) -> str:
        return f"{self.text!r:.100}" if self.type is ConstantType.STRING else f"{self.text}"


NULL = Constant(ConstantType.STRING, None)


def constant(value: object, *, column: str) -> Constant:
    """Convert a Python value to a constant to compare with a column.

    Raises:
        BatchError: the server would not get exactly this value; the message names a remedy.
    """
    try:
        return _constant(value)
    except BatchError as error:
        raise BatchError(f"{column}: {error}") from None


def _constant(value: object) -> Constant:
    # The order matters: True is an int, and every datetime is a date.
    if isinstance(value, bool):
        return Constant(ConstantType.BOOLEAN, str(value).lower())
    if isinstance(value, int):
        return Constant(ConstantType.INTEGER, _integer(value))
    if isinstance(value, float):
        return Constant(ConstantType.DOUBLE, _double(value))
    if isinstance(value, str):
        return Constant(ConstantType.STRING, checked_text(value, what="the constant"))
    if isinstance(value, datetime):
        return Constant(ConstantType.DATETIME, _datetime(value))
    if value is None:
        raise BatchError("a comparison with NULL never holds: use .is_null()")
    if isinstance(value, date | Decimal):
        raise BatchError(
            f"a constant cannot be the {type(value).__name__.lower()} {value}: {_REMEDY}"
        )
    raise BatchError(
        f"{value!r:.100} is not a constant: use bool, int, float, str or a datetime with a time "
        f"zone; for other types, {_REMEDY}"
    )


def _integer(value: int) -> str:
    if not -_BEYOND <= value < _BEYOND:
        raise BatchError(
            f"the constant {value:,} has more than 64 bits, so no integer column can hold it"
        )
    # The plain digits, even if a subclass has its own text.
    return int.__repr__(value)


def _double(value: float) -> str:
    if not math.isfinite(value):
        raise BatchError(f"a constant cannot be {value}: {_REMEDY}")
    return float.__repr__(value)


def _datetime(value: datetime) -> str:
    if value.utcoffset() is None:
        raise BatchError(
            f"the datetime {value} has no time zone: set one, such as .replace(tzinfo=UTC)"
        )
    try:
        instant = value.astimezone(UTC)
    except OverflowError:
        raise BatchError(f"the datetime {value} is beyond the years 1 to 9999 in UTC") from None
    text = instant.isoformat(timespec="milliseconds")
    # Not compared with `value`: a time in the repeated hour equals none in another zone.
    if datetime.fromisoformat(text) != instant:
        raise BatchError(
            f"the datetime {value} has more than milliseconds, which a constant cannot hold: "
            f"round it, or {_REMEDY}"
        )
    return text.replace("+00:00", "Z")
