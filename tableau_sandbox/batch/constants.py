"""Constants in conditions: parsed exactly, or refused."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeAlias, TypeGuard

from tableau_sandbox.batch.errors import GrammarError


class ConstantType(StrEnum):
    """The declared type of a constant."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    DOUBLE = "double"
    STRING = "string"
    DATETIME = "datetime"


Value: TypeAlias = bool | int | float | str | datetime | None


@dataclass(frozen=True)
class Constant:
    """A constant; a datetime is in UTC."""

    type: ConstantType
    value: Value


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DOUBLE = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
# Real servers are known to support milliseconds; their treatment of finer fractions is not known.
_DATETIME = re.compile(
    r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(\.\d{1,3})?(Z|[+-]\d{2}:?\d{2})", re.ASCII
)
_BEYOND = 1 << 63
# From here on, JSON numbers with a fraction cannot represent every whole number.
_EXACT = 1 << 53


def constant_of(type_: ConstantType, written: object) -> Constant:
    """Return the constant for `written`, a value in JSON.

    Raises:
        GrammarError: it is not a value of that type, or not exactly one.
    """
    value = written if written is None else _READERS[type_](written)
    if value is None and written is not None:
        raise GrammarError(f"{_shortened(written)} is no {type_}{_HINTS.get(type_, '')}")
    return Constant(type_, value)


def _boolean(written: object) -> bool | None:
    if isinstance(written, bool):
        return written
    return {"true": True, "false": False}.get(str(written).lower())


def _integer(written: object) -> int | None:
    number = None
    if isinstance(written, str):
        number = int(written) if _INTEGER.fullmatch(written) else None
    elif _is_exact(written):
        number = int(written)
    elif isinstance(written, int) and not isinstance(written, bool):
        number = written
    return number if number is not None and -_BEYOND <= number < _BEYOND else None


def _double(written: object) -> float | None:
    number = None
    if isinstance(written, str):
        number = float(written) if _DOUBLE.fullmatch(written) else None
    elif isinstance(written, float) or _is_exact(written):
        number = float(written)
    return number if number is not None and math.isfinite(number) else None


def _is_exact(written: object) -> TypeGuard[int | float]:
    """Whether a JSON number is the same whole number with and without a fraction."""
    if isinstance(written, bool) or not isinstance(written, int | float):
        return False
    # This also excludes 1e999, which JSON reads as infinity: its quotient is not a number.
    return written == written // 1 and abs(written) < _EXACT


def _string(written: object) -> str | None:
    return written if isinstance(written, str) else None


def _datetime(written: object) -> datetime | None:
    match = _DATETIME.fullmatch(written) if isinstance(written, str) else None
    if match is None:
        return None
    try:
        return datetime.fromisoformat("".join(part or "" for part in match.groups())).astimezone(
            UTC
        )
    except (ValueError, OverflowError):
        return None


def _shortened(written: object) -> str:
    return repr(written)[:100]


_READERS = {
    ConstantType.BOOLEAN: _boolean,
    ConstantType.INTEGER: _integer,
    ConstantType.DOUBLE: _double,
    ConstantType.STRING: _string,
    ConstantType.DATETIME: _datetime,
}
_HINTS = {
    ConstantType.INTEGER: " of 64 bits",
    ConstantType.DATETIME: " with a time zone, such as 2007-12-03T10:15:30Z",
}
