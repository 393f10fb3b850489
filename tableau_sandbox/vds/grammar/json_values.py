"""Read JSON strictly, and exactly: numbers with a fraction or an exponent are decimals."""

import json
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from tableau_sandbox.vds.errors import VdsError, malformed
from tableau_sandbox.vds.filters import Number, Value

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
# A reader gets a JSON value and its place in the request.
Reader: TypeAlias = Callable[[object, str], T]

# The deepest request has about ten levels.
_DEEPEST = 100
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# Real servers compute with doubles, and take integers of 32 bits.
_LARGEST, _SMALLEST = Decimal(sys.float_info.max), Decimal("5e-324")
_BEYOND = 1 << 31


def parse_json(body: bytes) -> object:
    """Parse a JSON text.

    Raises:
        VdsError: 400000, it is not JSON, repeats a key, or is nested too deeply.
    """
    try:
        value = json.loads(
            body.decode("utf-8-sig"),
            object_pairs_hook=_object,
            parse_float=Decimal,
            parse_constant=_no_number,
        )
    except RecursionError as error:
        raise _no_json("It is nested too deeply.") from error
    # These include texts that are not UTF-8, numbers of thousands of digits, and huge exponents.
    except (ValueError, ArithmeticError) as error:
        raise _no_json(str(error)) from error
    _check_tree(value, levels=_DEEPEST)
    return value


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a JSON object, and its place in the request."""

    values: dict[str, Any]
    place: str

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def required(self, key: str, read: Reader[T]) -> T:
        """Return what `read` makes of a field.

        Raises:
            VdsError: 400802, the field is missing, or `read` refuses it.
        """
        if key not in self.values:
            raise malformed(f"{self.place} needs '{key}'.")
        return read(self.values[key], f"{self.place}.{key}")

    def optional(self, key: str, read: Reader[T], default: T) -> T:
        """Return what `read` makes of a field, or the default if the field is missing.

        Raises:
            VdsError: 400802, `read` refuses the field.
        """
        return self.required(key, read) if key in self.values else default

    def maybe(self, key: str, read: Reader[T]) -> T | None:
        """Return what `read` makes of a field, or None if the field is missing.

        Raises:
            VdsError: 400802, `read` refuses the field.
        """
        return self.required(key, read) if key in self.values else None


def fields_of(value: object, place: str, *, known: Collection[str] | None = None) -> Fields:
    """Return the fields of a JSON object.

    Args:
        value: the JSON value.
        place: its place in the request.
        known: the keys that it may have; None for any.

    Raises:
        VdsError: 400802, it is not an object, or has an unknown key.
    """
    if not isinstance(value, dict):
        raise malformed(f"{place} must be an object.")
    for key in value:
        if known is not None and key not in known:
            raise malformed(f"{place} has the unknown key {key!a}; known: {', '.join(known)}.")
    return Fields(value, place)


def text(value: object, place: str) -> str:
    """Read a string."""
    if not isinstance(value, str):
        raise malformed(f"{place} must be a string.")
    return value


def flag(value: object, place: str) -> bool:
    """Read a boolean."""
    if not isinstance(value, bool):
        raise malformed(f"{place} must be a boolean.")
    return value


def number(value: object, place: str) -> Number:
    """Read a number, exactly."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise malformed(f"{place} must be a number.")
    return _checked(value, place)


def scalar(value: object, place: str) -> Value:
    """Read a string, a boolean, a number or null, exactly."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | Decimal):
        return _checked(value, place)
    raise malformed(f"{place} must be a string, a boolean, a number or null.")


def day(value: object, place: str) -> date:
    """Read a date of the form 2025-03-14."""
    written = text(value, place)
    try:
        # Python reads other forms of ISO 8601 too.
        return date.fromisoformat(written if _DATE.fullmatch(written) else "")
    except ValueError:
        raise malformed(f"{place} must be a date such as 2025-03-14.") from None


def whole(minimum: int | None = None) -> Reader[int]:
    """Return the reader of an integer of 32 bits that is not less than the minimum."""

    def read(value: object, place: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise malformed(f"{place} must be an integer.")
        least = -_BEYOND if minimum is None else minimum
        if not least <= value < _BEYOND:
            raise malformed(f"{place} must be an integer from {least} to {_BEYOND - 1}.")
        return value

    return read


def choice(kind: type[E]) -> Reader[E]:
    """Return the reader of one of the values of an enumeration."""

    def read(value: object, place: str) -> E:
        if value not in list(kind):
            raise malformed(f"{place} must be one of {', '.join(kind)}.")
        return kind(value)

    return read


def many(read: Reader[T]) -> Reader[tuple[T, ...]]:
    """Return the reader of a list."""

    def read_all(value: object, place: str) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise malformed(f"{place} must be a list.")
        return tuple(read(item, f"{place}[{position}]") for position, item in enumerate(value))

    return read_all


def _checked(value: Number, place: str) -> Number:
    # Unlike abs(), comparisons of decimals are exact.
    if value and not (-_LARGEST <= value <= -_SMALLEST or _SMALLEST <= value <= _LARGEST):
        raise malformed(f"{place} is beyond the range of numbers.")
    return value


def _check_tree(value: object, *, levels: int) -> None:
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, dict | list):
        if not levels:
            raise _no_json("It is nested too deeply.")
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            _check_tree(item, levels=levels - 1)


def _check_text(written: str) -> None:
    # hyperd treats U+0000 as the end of a statement.
    if "\0" in written or any("\ud800" <= letter <= "\udfff" for letter in written):
        raise _no_json(f"{written[:100]!a} is no text.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"a key is repeated among {', '.join(key for key, _ in pairs)!a}")
    return fields


def _no_number(written: str) -> None:
    raise ValueError(f"{written} is no number")


def _no_json(reason: str) -> VdsError:
    return VdsError("400000", f"Unable to parse the request body. {reason}")
