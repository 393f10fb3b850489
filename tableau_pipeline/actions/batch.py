"""Action batches: lists of changes to published data. A server applies all or none of a batch.

For example, this batch deletes rows, and then inserts rows:

Batch([
    Delete(target="sales", source="affected", where=target("id") == source("id")),
    Insert(target="sales", source="fresh"),
]).json()
"""

import json
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NoReturn

from tableauhyperapi import TableName

from tableau_pipeline.errors import BatchError

__all__ = [
    "Action",
    "Batch",
    "BatchError",
    "Delete",
    "Insert",
    "Replace",
    "Upsert",
    "all_of",
    "source",
    "target",
]

# A str is a table name without a schema. Use a str if only one schema of the file has tables.
Table = TableName | str
Value = bool | int | float | str | datetime
# The table of a compared column: `target` is the published table, `source` the uploaded table.
_Side = Literal["target", "source"]

# Maps each operator of conditions to its sign in Python. For `is`, NULL equals NULL.
_SIGNS = {"eq": "==", "neq": "!=", "gt": ">", "lt": "<", "gte": ">=", "lte": "<=", "is": "is"}
_SIGNS |= {"and": "&", "or": "|"}
_MIRRORED = {"gt": "lt", "lt": "gt", "gte": "lte", "lte": "gte"}
# A condition with more terms can crash a server.
_MOST_TERMS = 5_000
_REMEDY = "put the values into a small table of the payload, and compare with its column"


@dataclass(frozen=True)
class Condition:
    """A condition on rows. Combine conditions by `&` and `|`.

    Put each condition in parentheses, because `&` and `|` bind more tightly than comparisons.

    Attributes:
        op: the operator of the comparison, or the operator that combines `args`.
        args: the combined conditions; () for a comparison.
        columns: the compared columns, each as a pair of table and column name.
        constant: the type and text of the compared value; None if two columns are compared. The
            text of NULL is None.
        terms: the number of comparisons.
    """

    op: str
    args: tuple["Condition", ...] = ()
    columns: tuple[tuple[_Side, str], ...] = ()
    constant: tuple[str, str | None] | None = None
    terms: int = 1

    @property
    def sent(self) -> dict[str, Any]:
        """The condition in the format of action batches."""
        if self.args:
            return {"op": self.op, "args": [arg.sent for arg in self.args]}
        fields: dict[str, Any] = {"op": self.op}
        fields |= {f"{side}-col": name for side, name in self.columns}
        if self.constant:
            fields["const"] = dict(zip(("type", "v"), self.constant, strict=True))
        return fields

    def __and__(self, other: "Condition") -> "Condition":
        return _joined("and", (self, other))

    def __or__(self, other: "Condition") -> "Condition":
        return _joined("or", (self, other))

    def __bool__(self) -> NoReturn:
        # Python would evaluate `a and b` to b, which may select more rows than `a & b`.
        raise BatchError(
            f"{self} is neither true nor false: combine conditions by & and |, each in "
            "parentheses, not by 'and', 'or', 'not' or chained comparisons"
        )

    def __str__(self) -> str:
        parts = [f"({arg})" for arg in self.args]
        parts += [f'{side}("{name}")' for side, name in self.columns]
        if self.constant:
            type_, text = self.constant
            parts.append(f"{text!r:.100}" if type_ == "string" else f"{text}")
        return f" {_SIGNS[self.op]} ".join(parts)


def all_of(conditions: Iterable[Condition]) -> Condition:
    """Combine conditions, such as one per key column, into a condition that requires all of them.

    Raises:
        BatchError: there are no conditions, there are too many comparisons, or an item is not a
            condition.
    """
    return _joined("and", tuple(conditions))


def _joined(op: str, conditions: tuple[Condition, ...]) -> Condition:
    args: list[Condition] = []
    terms = 0
    for condition in conditions:
        if not isinstance(condition, Condition):
            raise BatchError(f"'{op}' combines comparisons, not {condition!r:.100}")
        # Flatten chains of `&` and `|`. Otherwise each operator would add a level of nesting, and a
        # long chain would be too deep for a server.
        args += condition.args if condition.op == op else (condition,)
        terms += condition.terms
    if not args:
        raise BatchError(f"'{op}' needs a condition")
    if terms > _MOST_TERMS:
        raise BatchError(
            f"a condition of {terms:,} terms is too long for a server (at most {_MOST_TERMS:,}): "
            f"{_REMEDY}"
        )
    return args[0] if len(args) == 1 else Condition(op, tuple(args), terms=terms)


@dataclass(frozen=True, eq=False)
class ColumnRef:
    """A column of the published or the uploaded table.

    Compare a column with a column of the other table, or with a constant.

    `==`, `!=`, `<`, `<=`, `>` and `>=` return conditions. These operators raise a BatchError for
    values that cannot be compared. As in SQL, a comparison never holds where a column is NULL.
    """

    side: _Side
    name: str

    def __post_init__(self) -> None:
        _checked_text(self.name, what=f"the {self.side} column")

    def __eq__(self, other: "ColumnRef | Value") -> Condition:  # ty: ignore[incompatible-method-override]
        return self._compare("eq", other)

    def __ne__(self, other: "ColumnRef | Value") -> Condition:  # ty: ignore[incompatible-method-override]
        return self._compare("neq", other)

    def __lt__(self, other: "ColumnRef | Value") -> Condition:
        return self._compare("lt", other)

    def __le__(self, other: "ColumnRef | Value") -> Condition:
        return self._compare("lte", other)

    def __gt__(self, other: "ColumnRef | Value") -> Condition:
        return self._compare("gt", other)

    def __ge__(self, other: "ColumnRef | Value") -> Condition:
        return self._compare("gte", other)

    __hash__ = None  # == returns a condition, which sets and dictionaries cannot use

    def is_(self, other: "ColumnRef | Value") -> Condition:
        """Compare like `==`, but NULL equals NULL.

        Raises:
            BatchError: the values cannot be compared.
        """
        return self._compare("is", other)

    def is_null(self) -> Condition:
        """Return a condition that holds where the column is NULL."""
        # The constant may have any type, because NULL fits every column.
        return Condition("is", columns=((self.side, self.name),), constant=("string", None))

    def __str__(self) -> str:
        return f'{self.side}("{self.name}")'

    def _compare(self, op: str, other: object) -> Condition:
        own = (self.side, self.name)
        if not isinstance(other, ColumnRef):
            try:
                return Condition(op, columns=(own,), constant=_constant(other))
            except BatchError as error:
                raise BatchError(f"{self}: {error}") from None
        if other.side == self.side:
            raise BatchError(
                f"{self} cannot be compared with {other}: a condition compares a column of the "
                "target with a column of the source, or a column with a constant"
            )
        if self.side == "target":
            return Condition(op, columns=(own, (other.side, other.name)))
        # An action names the column of the target first, so source < target becomes
        # target > source.
        return Condition(_MIRRORED.get(op, op), columns=((other.side, other.name), own))


def target(column: str) -> ColumnRef:
    """Refer to a column of the published table.

    Raises:
        BatchError: the name is not valid for a column.
    """
    return ColumnRef("target", column)


def source(column: str) -> ColumnRef:
    """Refer to a column of the uploaded table.

    Raises:
        BatchError: the name is not valid for a column.
    """
    return ColumnRef("source", column)


def _constant(value: object) -> tuple[str, str]:
    """Return the type and the text of a constant.

    Raises:
        BatchError: a batch cannot express this value exactly; the message names a remedy.
    """
    # Match bool before int, because True is an int.
    match value:
        case bool():
            return "boolean", str(value).lower()
        case int() if -(1 << 63) <= value < 1 << 63:
            # Call int's own method, because a subclass may return another text.
            return "integer", int.__repr__(value)
        case float() if math.isfinite(value):
            return "double", float.__repr__(value)
        case str():
            return "string", _checked_text(value, what="the constant")
        case datetime() if text := _instant(value):
            return "datetime", text
        case None:
            raise BatchError("a comparison with NULL never holds: use .is_null()")
    raise BatchError(
        f"{value!r:.100} is not a constant: use a bool, an int of at most 64 bits, a finite float, "
        "a str, or a datetime that has a time zone and whole milliseconds, and is in the years 1 "
        f"to 9999 in UTC; for other values, {_REMEDY}"
    )


def _instant(value: datetime) -> str | None:
    """Return a datetime as text for a batch; None without a time zone, or if no text is exact."""
    try:
        instant = value.astimezone(UTC)
    except OverflowError:
        return None
    text = instant.isoformat(timespec="milliseconds")
    # Compare with `instant`, not with `value`. An hour repeats when clocks go back. In Python, a
    # time in this hour never equals a time in another zone.
    if value.utcoffset() is None or datetime.fromisoformat(text) != instant:
        return None
    return text.replace("+00:00", "Z")


@dataclass(frozen=True, kw_only=True)
class Insert:
    """Append the rows of `source`, which must have exactly the columns of `target`."""

    target: Table
    source: Table


@dataclass(frozen=True, kw_only=True)
class Replace:
    """Replace all rows of `target` by the rows of `source`, which has the same columns."""

    target: Table
    source: Table


@dataclass(frozen=True, kw_only=True)
class Upsert:
    """Update the rows of `target` that match a row of `source`; insert the other rows of `source`.

    `where` compares key columns of both tables by `==` or `.is_()`, combined by `&`.
    """

    target: Table
    source: Table
    where: Condition


@dataclass(frozen=True, kw_only=True)
class Delete:
    """Delete the rows of `target` for which `where` holds.

    With a `source`, the server deletes a row if `where` holds for this row and at least one row of
    `source`. Then `where` must compare every column of `source`.
    """

    target: Table
    source: Table | None = None
    where: Condition


Action = Insert | Upsert | Delete | Replace


@dataclass(frozen=True)
class Batch:
    """A list of actions. A server applies all of them in this order, or none of them."""

    actions: Sequence[Action]

    def __post_init__(self) -> None:
        """Check the actions for errors that a server would not notice.

        Raises:
            BatchError: there are no actions, the server cannot read a name, or `where` is not a
                condition.
        """
        # Copy the list, so that the caller cannot change the checked batch later.
        object.__setattr__(self, "actions", tuple(self.actions))
        if not self.actions:
            raise BatchError("a batch needs at least one action")
        self.wire_actions()

    def wire_actions(self) -> list[dict[str, Any]]:
        """Return the actions in the format of the Tableau Server Client's `update_hyper_data`."""
        return [_wire(action) for action in self.actions]

    def json(self) -> str:
        """Return the JSON body of an update request."""
        return json.dumps({"actions": self.wire_actions()}, ensure_ascii=False)


def _wire(action: Action) -> dict[str, Any]:
    fields: dict[str, Any] = {"action": type(action).__name__.lower()}
    for side, table in (("target", action.target), ("source", action.source)):
        if table is None and isinstance(action, Delete):
            continue
        name: object = table
        if isinstance(table, TableName):
            name = table.name.unescaped
            if schema := table.schema_name:
                what = f"the schema of the {side} table"
                fields[f"{side}-schema"] = _checked_text(schema.name.unescaped, what=what)
        fields[f"{side}-table"] = _checked_text(name, what=f"the {side} table")
    if isinstance(action, Upsert | Delete):
        if not isinstance(action.where, Condition):
            raise BatchError(f"{action.where!r:.100} is not a condition")
        fields["condition"] = action.where.sent
    return fields


def _checked_text(text: object, *, what: str) -> str:
    """Check that the server can read `text`, and return `text` unchanged.

    Raises:
        BatchError: `text` is not a str, or the server cannot read it.
    """
    with suppress(UnicodeEncodeError):
        if isinstance(text, str) and "\0" not in text:
            text.encode()
            return text
    raise BatchError(
        f"{what} must be Unicode text without U+0000 (the server stops reading there), not {text!a}"
    )


def describe_actions(batch: str) -> str:
    """Return a numbered list of a batch's actions.

    Messages show the list after the server's notes on a failed batch, because the notes name at
    most one action.
    """
    actions = [
        f"{number}. {action['action']} {action.get('target-schema', '')}.{action['target-table']}"
        for number, action in enumerate(json.loads(batch)["actions"], start=1)
    ]
    return f"Its actions were: {'; '.join(actions)}. "
