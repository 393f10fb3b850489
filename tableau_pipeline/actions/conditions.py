"""Conditions of action batches: `target("a") == source("b")`."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal, NoReturn

from tableauhyperapi import TableName

from tableau_pipeline.errors import BatchError


def checked_text(text: object, *, what: str) -> str:
    """Return the text if the server can read it.

    Raises:
        BatchError: it is not a text, or one that the server cannot read.
    """
    if not isinstance(text, str):
        raise BatchError(f"{what} must be a string, not {text!r}")
    if "\0" in text:
        raise BatchError(f"{what} {text!r} contains U+0000, at which the server stops reading")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BatchError(f"{what} {text!a} is not Unicode text: {error.reason}") from error
    return text


def schema_and_table(table: object, *, what: str) -> tuple[str | None, str]:
    """Return the schema and name of a table; the schema is None if it is not given.

    Raises:
        BatchError: it is not a valid table name.
    """
    if not isinstance(table, TableName):
        return None, checked_text(table, what=what)
    schema = table.schema_name
    if schema is None:
        return None, checked_text(table.name.unescaped, what=what)
    return (
        checked_text(schema.name.unescaped, what=f"the schema of {what}"),
        checked_text(table.name.unescaped, what=what),
    )


Value = bool | int | float | str | datetime
ConstantType = Literal["boolean", "integer", "double", "string", "datetime"]

_BEYOND = 1 << 63
_REMEDY = "put the values into a small table of the payload, and compare with its column"


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant as it is sent; `text` is None for NULL, which fits any type."""

    type: ConstantType
    text: str | None

    def __str__(self) -> str:
        return f"{self.text!r:.100}" if self.type == "string" else f"{self.text}"


NULL = Constant("string", None)


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
    match value:
        case bool():
            return Constant("boolean", str(value).lower())
        case int():
            if not -_BEYOND <= value < _BEYOND:
                raise BatchError(
                    f"the constant {value:,} has more than 64 bits, so no integer column can "
                    "hold it"
                )
            # The plain digits, even if a subclass has its own text.
            return Constant("integer", int.__repr__(value))
        case float():
            if not math.isfinite(value):
                raise BatchError(f"a constant cannot be {value}: {_REMEDY}")
            return Constant("double", float.__repr__(value))
        case str():
            return Constant("string", checked_text(value, what="the constant"))
        case datetime():
            return Constant("datetime", _datetime(value))
        case None:
            raise BatchError("a comparison with NULL never holds: use .is_null()")
        case date() | Decimal():
            kind = type(value).__name__.lower()
            raise BatchError(f"a constant cannot be the {kind} {value}: {_REMEDY}")
        case _:
            raise BatchError(
                f"{value!r:.100} is not a constant: use bool, int, float, str or a datetime with "
                f"a time zone; for other types, {_REMEDY}"
            )


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


# Longer conditions can crash a server.
_MOST_TERMS = 5_000


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

    @property
    def symbol(self) -> str:
        """The operator as written in Python code."""
        return _SYMBOLS.get(self, self.value)


_SYMBOLS = {Op.EQ: "==", Op.NEQ: "!=", Op.GT: ">", Op.LT: "<", Op.GTE: ">=", Op.LTE: "<="}


Joint = Literal["and", "or"]
_SIGNS: dict[Joint, str] = {"and": "&", "or": "|"}


class Condition:
    """Selects rows. Combine conditions by `&` and `|`, each in its own parentheses."""

    @property
    def terms(self) -> int:
        """The number of comparisons."""
        return 1

    def __and__(self, other: "Condition") -> "Condition":
        return _joined("and", (self, other))

    def __or__(self, other: "Condition") -> "Condition":
        return _joined("or", (self, other))

    def __bool__(self) -> NoReturn:
        # `a and b` would evaluate to b alone, and so select more rows than both.
        raise BatchError(
            f"{self} is neither true nor false: combine conditions by & and |, each in "
            "parentheses, not by 'and', 'or', 'not' or chained comparisons"
        )


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

    @property
    def terms(self) -> int:
        """The number of comparisons."""
        return sum(arg.terms for arg in self.args)

    def __str__(self) -> str:
        return f" {_SIGNS[self.joint]} ".join(f"({arg})" for arg in self.args)


def as_sent(condition: Condition) -> Any:
    """Return a condition as action batches write it."""
    if isinstance(condition, Junction):
        return {"op": condition.joint, "args": [as_sent(arg) for arg in condition.args]}
    if not isinstance(condition, Predicate):
        raise BatchError(f"{condition!r:.100} is not a condition")
    fields: dict[str, Any] = {"op": condition.op.value}
    fields |= {f"{side}-col": name for side, name in condition.columns}
    if condition.constant is not None:
        fields["const"] = {"type": condition.constant.type, "v": condition.constant.text}
    return fields


def all_of(conditions: Iterable[Condition]) -> Condition:
    """Return a condition that holds where all of them hold, such as for keys of several columns.

    Raises:
        BatchError: there are no conditions.
    """
    return _joined("and", tuple(conditions))


def _joined(joint: Joint, conditions: tuple[Condition, ...]) -> Condition:
    args: list[Condition] = []
    for condition in conditions:
        if not isinstance(condition, Predicate | Junction):
            raise BatchError(f"'{joint}' combines comparisons, not {condition!r:.100}")
        # Each & in a chain would otherwise nest one level deeper, and soon too deep for a server.
        same = isinstance(condition, Junction) and condition.joint == joint
        args += condition.args if same else (condition,)
    if not args:
        raise BatchError(f"'{joint}' needs a condition")
    if (terms := sum(arg.terms for arg in args)) > _MOST_TERMS:
        raise BatchError(
            f"a condition of {terms:,} terms is too long for a server (at most {_MOST_TERMS:,}): "
            f"{_REMEDY}"
        )
    return args[0] if len(args) == 1 else Junction(joint, tuple(args))


_MIRRORED = {Op.GT: Op.LT, Op.LT: Op.GT, Op.GTE: Op.LTE, Op.LTE: Op.GTE}


@dataclass(frozen=True, eq=False)
class ColumnRef:
    """A column, to be compared with a column of the other table or with a constant.

    `==`, `!=`, `<`, `<=`, `>` and `>=` return conditions, and raise `BatchError` for values that
    cannot be compared. As in SQL, a comparison with NULL never holds.
    """

    side: Side
    name: str

    def __post_init__(self) -> None:
        checked_text(self.name, what=f"the {self.side} column")

    def __eq__(self, other: "ColumnRef | Value") -> Predicate:  # ty: ignore[incompatible-method-override]
        return self._compare(Op.EQ, other)

    def __ne__(self, other: "ColumnRef | Value") -> Predicate:  # ty: ignore[incompatible-method-override]
        return self._compare(Op.NEQ, other)

    def __lt__(self, other: "ColumnRef | Value") -> Predicate:
        return self._compare(Op.LT, other)

    def __le__(self, other: "ColumnRef | Value") -> Predicate:
        return self._compare(Op.LTE, other)

    def __gt__(self, other: "ColumnRef | Value") -> Predicate:
        return self._compare(Op.GT, other)

    def __ge__(self, other: "ColumnRef | Value") -> Predicate:
        return self._compare(Op.GTE, other)

    __hash__ = None  # == returns a condition, which sets and dictionaries cannot use

    def is_(self, other: "ColumnRef | Value") -> Predicate:
        """Compare like `==`, but NULL equals NULL.

        Raises:
            BatchError: the values cannot be compared.
        """
        return self._compare(Op.IS, other)

    def is_null(self) -> Predicate:
        """Return a condition that holds where the column is NULL."""
        return self._with(Op.IS, NULL)

    def __str__(self) -> str:
        return f'{self.side}("{self.name}")'

    def _compare(self, op: Op, other: object) -> Predicate:
        if not isinstance(other, ColumnRef):
            return self._with(op, constant(other, column=str(self)))
        if other.side is self.side:
            raise BatchError(
                f"{self} cannot be compared with {other}: a condition compares a column of the "
                "target with a column of the source, or a column with a constant"
            )
        if self.side is Side.TARGET:
            return Predicate(op, target=self.name, source=other.name)
        # An action always puts the column of the target first, so source < target becomes
        # target > source.
        return Predicate(_MIRRORED.get(op, op), target=other.name, source=self.name)

    def _with(self, op: Op, value: Constant) -> Predicate:
        if self.side is Side.TARGET:
            return Predicate(op, target=self.name, constant=value)
        return Predicate(op, source=self.name, constant=value)


def target(column: str) -> ColumnRef:
    """Refer to a column of the published table.

    Raises:
        BatchError: the name is not valid for a column.
    """
    return ColumnRef(Side.TARGET, column)


def source(column: str) -> ColumnRef:
    """Refer to a column of the uploaded table.

    Raises:
        BatchError: the name is not valid for a column.
    """
    return ColumnRef(Side.SOURCE, column)
