"""Values of hyperd as values of JSON."""

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from tableauhyperapi import Date, Timestamp

from tableau_sandbox.vds.functions import DataType

Value = bool | int | float | str | None


def json_value(value: Any, data_type: DataType, *, places: int | None) -> Value:
    """Return a value of a column as JSON has it; what JSON has not is null.

    Args:
        value: the value as the Hyper API returns it.
        data_type: the type of the column.
        places: the largest number of decimal places; None for all.
    """
    return None if value is None else _WRITERS[data_type](value, places)


def _integer(value: int | Decimal | float, _: int | None) -> int:
    return int(value)


def _real(value: int | Decimal | float, places: int | None) -> float | None:
    number = float(value)
    if not math.isfinite(number):
        return None
    return number if places is None else round(number, places)


def _text(value: object, _: int | None) -> str:
    return str(value)


def _date(value: Date | Timestamp, _: int | None) -> str:
    return f"{value.year:04}-{value.month:02}-{value.day:02}"


def _moment(value: Timestamp, _: int | None) -> str:
    date, time = _date(value, None), f"{value.hour:02}:{value.minute:02}:{value.second:02}"
    fraction = f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
    return f"{date}T{time}{fraction}"


_WRITERS: Mapping[DataType, Callable[[Any, int | None], Value]] = {
    DataType.INTEGER: _integer,
    DataType.REAL: _real,
    DataType.STRING: _text,
    DataType.BOOLEAN: lambda value, _: bool(value),
    DataType.DATE: _date,
    DataType.DATETIME: _moment,
}
