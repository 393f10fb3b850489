"""Conditions of action batches, as plain values; `columns` builds them from expressions."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NoReturn

from tableau_pipeline.actions.constants import Constant
from tableau_pipeline.errors import BatchError

# Longer conditions can crash a server.
_MOST_TERMS = 5_000
_DEEPEST = 100
_REMEDY = "put the values into a small table of the payload and compare with its columns"


class Side(StrEnum):
    """The table of a column: the published one, or the uploaded one."""

    TARGET = "target"
    SOURCE = "source"


class Op(StrEnum):
    """A comparison operator; IS treats NULL as a value."""

    EQ = "eq"
    NEQ = "neq"
    GT = "gt"
    LT = "lt"
    GTE = "gte"
    LTE = "lte"
    IS = "is"
    HAS = "has"

    @property
    def symbol(self) -> str:
        """The operator as written in Python code."""
        return _SYMBOLS.get(self, self.value)


_SYMBOLS = {Op.EQ: "==", Op.NEQ: "!=", Op.GT: ">", Op.LT: "<", Op.GTE: ">=", Op.LTE: "<="}


class Joint(StrEnum):
    """How conditions are combined."""

    AND = "and"
    OR = "or"


_SIGNS = {Joint.AND: "&", Joint.OR: "|"}


class Condition(ABC):
    """Selects rows. Combine conditions by `&` and `|`, each in its own parentheses.

    Attributes:
        depth: the number of nested junctions.
        terms: the number of comparisons.
    """

    depth = 0
    terms = 1

    def __and__(self, other: "Condition") -> "Condition":
        return _joined(Joint.AND, (self, other))

    def __or__(self, other: "Condition") -> "Condition":
        return _joined(Joint.OR, (self, other))

    def __bool__(self) -> NoReturn:
        # `a and b` would evaluate to b alone, and so select more rows than both.
        raise BatchError(
            f"{self} is neither true nor false: combine conditions by & and |, each in "
            "parentheses, not by 'and', 'or', 'not' or chained comparisons"
        )

    @abstractmethod
    def json(self) -> Any:
        """Return the condition as it is sent."""


@dataclass(frozen=True)
class Always(Condition):
    """Every row."""

    def json(self) -> Any:
        """Return the condition as it is sent."""
        return True

    def __str__(self) -> str:
        return "always"


@dataclass(frozen=True)
class Predicate(Condition):
    """A comparison of a column of each table, or of one column with a constant."""

    op: Op
    target: str | None = None
    source: str | None = None
    constant: Constant | None = None

    @property
    def columns(self) -> list[tuple[Side, str]]:
        """The columns that are compared, with their tables."""
        sides = ((Side.TARGET, self.target), (Side.SOURCE, self.source))
        return [(side, name) for side, name in sides if name is not None]

    def json(self) -> Any:
        """Return the condition as it is sent."""
        fields: dict[str, Any] = {"op": self.op.value}
        fields |= {f"{side}-col": name for side, name in self.columns}
        if self.constant is not None:
            fields["const"] = {"type": self.constant.type.value, "v": self.constant.text}
        return fields

    def __str__(self) -> str:
        operands = [f'{side}("{name}")' for side, name in self.columns]
        if self.constant is not None:
            operands.append(str(self.constant))
        return f" {self.op.symbol} ".join(operands)


@dataclass(frozen=True)
class Junction(Condition):
    """A combination of conditions of which all must hold, or any."""

    joint: Joint
    args: tuple[Condition, ...]

    def __post_init__(self) -> None:
        """Check the limits of servers.

        Raises:
            BatchError: the condition is too long or too deeply nested.
        """
        if self.terms > _MOST_TERMS:
            raise BatchError(
                f"a condition of {self.terms:,} terms is too long for a server (at most "
                f"{_MOST_TERMS:,}): {_REMEDY}"
            )
        if self.depth > _DEEPEST:
            raise BatchError(
                f"a condition nested more than {_DEEPEST} levels is too deep for a server: "
                f"{_REMEDY}"
            )

    @cached_property
    def depth(self) -> int:
        """The number of nested junctions."""
        # Cached, because every junction above this one asks for it.
        return 1 + max(arg.depth for arg in self.args)

    @cached_property
    def terms(self) -> int:
        """The number of comparisons."""
        return sum(arg.terms for arg in self.args)

    def json(self) -> Any:
        """Return the condition as it is sent."""
        return {"op": self.joint.value, "args": [arg.json() for arg in self.args]}

    def __str__(self) -> str:
        return f" {_SIGNS[self.joint]} ".join(f"({arg})" for arg in self.args)


always = Always()


def all_of(conditions: Iterable[Condition]) -> Condition:
    """Return a condition that holds where all of them hold, such as for keys of several columns.

    Raises:
        BatchError: there are no conditions.
    """
    return _joined(Joint.AND, tuple(conditions))


def any_of(conditions: Iterable[Condition]) -> Condition:
    """Return a condition that holds where at least one of them holds.

    Raises:
        BatchError: there are no conditions.
    """
    return _joined(Joint.OR, tuple(conditions))


def predicates(condition: Condition | None) -> Iterator[Predicate]:
    """Yield the comparisons of a condition, in the order in which they are written."""
    if isinstance(condition, Junction):
        for arg in condition.args:
            yield from predicates(arg)
    elif isinstance(condition, Predicate):
        yield condition


def columns_of(condition: Condition | None, side: Side) -> list[str]:
    """Return the columns of one table that a condition uses, each once."""
    names = (name for each in predicates(condition) for at, name in each.columns if at is side)
    return list(dict.fromkeys(names))


def _joined(joint: Joint, conditions: tuple[Condition, ...]) -> Condition:
    args: list[Condition] = []
    for condition in conditions:
        if not isinstance(condition, Predicate | Junction):
            raise BatchError(
                f"'{joint}' combines comparisons, not {condition!r:.100}; `always` stands alone"
            )
        # Each & in a chain would otherwise nest one level deeper, and soon too deep for a server.
        same = isinstance(condition, Junction) and condition.joint is joint
        args += condition.args if same else (condition,)
    if not args:
        raise BatchError(f"'{joint}' needs a condition; use `always` for every row")
    return args[0] if len(args) == 1 else Junction(joint, tuple(args))
