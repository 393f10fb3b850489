"""The functions of measures, and the types of data to which they apply."""

from collections.abc import Mapping
from enum import StrEnum


class DataType(StrEnum):
    """The type of a field."""

    INTEGER = "INTEGER"
    REAL = "REAL"
    STRING = "STRING"
    DATETIME = "DATETIME"
    BOOLEAN = "BOOLEAN"
    DATE = "DATE"
    SPATIAL = "SPATIAL"
    UNKNOWN = "UNKNOWN"


class Function(StrEnum):
    """A function of a measure: an aggregate, or a part of a date."""

    SUM = "SUM"
    AVG = "AVG"
    MEDIAN = "MEDIAN"
    COUNT = "COUNT"
    COUNTD = "COUNTD"
    MIN = "MIN"
    MAX = "MAX"
    STDEV = "STDEV"
    VAR = "VAR"
    COLLECT = "COLLECT"
    YEAR = "YEAR"
    QUARTER = "QUARTER"
    MONTH = "MONTH"
    WEEK = "WEEK"
    DAY = "DAY"
    TRUNC_YEAR = "TRUNC_YEAR"
    TRUNC_QUARTER = "TRUNC_QUARTER"
    TRUNC_MONTH = "TRUNC_MONTH"
    TRUNC_WEEK = "TRUNC_WEEK"
    TRUNC_DAY = "TRUNC_DAY"
    AGG = "AGG"
    NONE = "NONE"
    UNSPECIFIED = "UNSPECIFIED"


COUNTS = frozenset({Function.COUNT, Function.COUNTD})
DATE_NUMBERS = frozenset(
    {Function.YEAR, Function.QUARTER, Function.MONTH, Function.WEEK, Function.DAY}
)
DATE_STARTS = frozenset(
    {
        Function.TRUNC_YEAR,
        Function.TRUNC_QUARTER,
        Function.TRUNC_MONTH,
        Function.TRUNC_WEEK,
        Function.TRUNC_DAY,
    }
)
NUMBERS = frozenset({DataType.INTEGER, DataType.REAL})
DATES = frozenset({DataType.DATE, DataType.DATETIME})

_OF_ANY = COUNTS | {Function.MIN, Function.MAX}
_OF_NUMBERS = _OF_ANY | {
    Function.SUM,
    Function.AVG,
    Function.MEDIAN,
    Function.STDEV,
    Function.VAR,
}
_OF_DATES = _OF_ANY | DATE_NUMBERS | DATE_STARTS

APPLICABLE: Mapping[DataType, frozenset[Function]] = {
    DataType.INTEGER: _OF_NUMBERS,
    DataType.REAL: _OF_NUMBERS,
    DataType.STRING: _OF_ANY,
    DataType.BOOLEAN: _OF_ANY,
    DataType.DATE: _OF_DATES,
    DataType.DATETIME: _OF_DATES,
    DataType.SPATIAL: frozenset(),
    DataType.UNKNOWN: frozenset(),
}


def result_type(function: Function, data_type: DataType) -> DataType:
    """Return the type of a function's values; `data_type` is one to which the function applies."""
    if function in COUNTS | DATE_NUMBERS:
        return DataType.INTEGER
    if function in {Function.MIN, Function.MAX} | DATE_STARTS:
        return data_type
    return data_type if function is Function.SUM else DataType.REAL
