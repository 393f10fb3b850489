"""Conditions as plain values."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tableau_sandbox.batch.constants import Constant


class Side(StrEnum):
    """The table of a column: the published one, or the uploaded one."""

    TARGET = "target"
    SOURCE = "source"


class Comparison(StrEnum):
    """A comparison operator."""

    EQ = "eq"
    NEQ = "neq"
    GT = "gt"
    LT = "lt"
    GTE = "gte"
    LTE = "lte"
    IS = "is"
    HAS = "has"


@dataclass(frozen=True)
class Always:
    """Every row matches."""


@dataclass(frozen=True)
class ColumnPair:
    """A column of the target compared with a column of the source."""

    comparison: Comparison
    target: str
    source: str


@dataclass(frozen=True)
class ConstantTest:
    """A column compared with a constant."""

    comparison: Comparison
    side: Side
    column: str
    constant: Constant


@dataclass(frozen=True)
class Junction:
    """A combination of conditions of which all must hold, or any."""

    all_of: bool
    args: tuple["Condition", ...]


Predicate: TypeAlias = ColumnPair | ConstantTest
Condition: TypeAlias = Always | Predicate | Junction


def predicates(condition: Condition) -> Iterator[Predicate]:
    """Yield the comparisons of a condition, in the order in which they are written."""
    if isinstance(condition, Junction):
        for arg in condition.args:
            yield from predicates(arg)
    elif not isinstance(condition, Always):
        yield condition


def columns_of(condition: Condition, side: Side) -> set[str]:
    """Return the columns of one table that a condition uses."""
    found = set()
    for predicate in predicates(condition):
        if isinstance(predicate, ColumnPair):
            found.add(predicate.target if side is Side.TARGET else predicate.source)
        elif predicate.side is side:
            found.add(predicate.column)
    return found


def column_pairs(condition: Condition) -> list[ColumnPair]:
    """Return the comparisons of a target column with a source column."""
    return [predicate for predicate in predicates(condition) if isinstance(predicate, ColumnPair)]
