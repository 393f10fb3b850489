"""The fields of a query as plain values."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TypeAlias

from tableau_sandbox.vds.functions import Function


class SortDirection(StrEnum):
    """The direction in which the rows of an answer are sorted."""

    ASC = "ASC"
    DESC = "DESC"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldBase:
    """What all fields of a query have in common.

    Attributes:
        caption: the field of the data source, or the name of a calculation.
        alias: its key in an answer of objects; None for the usual one.
        max_decimal_places: how many decimal places are returned at most; None for all.
        sort_direction: counts only beside a priority.
        sort_priority: from 1, the smallest first; None if the answer is not sorted by the field.
    """

    caption: str
    alias: str | None = None
    max_decimal_places: int | None = None
    sort_direction: SortDirection = SortDirection.ASC
    sort_priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension(FieldBase):
    """A field by whose values rows are grouped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure(FieldBase):
    """A field under a function."""

    function: Function


@dataclass(frozen=True, slots=True, kw_only=True)
class Calculation(FieldBase):
    """A formula under a name of its own."""

    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin(FieldBase):
    """A field by whose ranges of values rows are grouped."""

    size: int | Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCalculation(FieldBase):
    """A calculation over the rows of the answer, of which only the captions are kept."""


QueryField: TypeAlias = Dimension | Measure | Calculation | Bin | TableCalculation


def answer_key(field: QueryField) -> str:
    """Return the key of a field in an answer of objects."""
    if field.alias is not None:
        return field.alias
    match field:
        case Measure():
            return f"{field.function}({field.caption})"
        case Bin():
            return f"{field.caption} (bin)"
    return field.caption
