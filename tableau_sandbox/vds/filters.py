"""The filters of a query as plain values."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias

from tableau_sandbox.vds.functions import Function

Number: TypeAlias = int | Decimal
Value: TypeAlias = bool | Number | str | None


class FilterType(StrEnum):
    """The kind of a filter."""

    SET = "SET"
    MATCH = "MATCH"
    QUANTITATIVE_NUMERICAL = "QUANTITATIVE_NUMERICAL"
    QUANTITATIVE_DATE = "QUANTITATIVE_DATE"
    DATE = "DATE"
    TOP = "TOP"
    CONDITION = "CONDITION"


class Bounds(StrEnum):
    """What a quantitative filter lets through."""

    RANGE = "RANGE"
    MIN = "MIN"
    MAX = "MAX"
    ONLY_NULL = "ONLY_NULL"
    ONLY_NON_NULL = "ONLY_NON_NULL"


@dataclass(frozen=True, slots=True)
class FieldReference:
    """A field of the data source, as it is or under a function."""

    caption: str
    function: Function | None = None


@dataclass(frozen=True, slots=True)
class FormulaReference:
    """A calculation by which rows are filtered."""

    formula: str


Reference: TypeAlias = FieldReference | FormulaReference


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterBase:
    """What all filters have in common.

    Attributes:
        field: what is filtered.
        context: whether the filter is applied before those that are not.
    """

    field: Reference
    context: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFilter(FilterBase):
    """Lets certain values through, or all others; numbers are exact."""

    values: tuple[Value, ...]
    exclude: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchFilter(FilterBase):
    """Lets texts through that satisfy all patterns that are not None, or all other texts."""

    starts_with: str | None = None
    ends_with: str | None = None
    contains: str | None = None
    exclude: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFilter(FilterBase):
    """Lets a range of numbers through; bounds are inclusive."""

    bounds: Bounds
    minimum: Number | None = None
    maximum: Number | None = None
    include_nulls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DateFilter(FilterBase):
    """Lets a range of dates through; bounds are inclusive."""

    bounds: Bounds
    minimum: date | None = None
    maximum: date | None = None
    include_nulls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFilter(FilterBase):
    """A filter that the sandbox does not emulate, and all fields that it refers to."""

    filter_type: FilterType
    references: tuple[Reference, ...] = ()


Filter: TypeAlias = SetFilter | MatchFilter | NumberFilter | DateFilter | OtherFilter


def filter_type(filter_: Filter) -> FilterType:
    """Return the kind of a filter."""
    match filter_:
        case SetFilter():
            return FilterType.SET
        case MatchFilter():
            return FilterType.MATCH
        case NumberFilter():
            return FilterType.QUANTITATIVE_NUMERICAL
        case DateFilter():
            return FilterType.QUANTITATIVE_DATE
    return filter_.filter_type
