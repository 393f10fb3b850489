"""Columns in conditions: `target("a") == source("a")`."""

from dataclasses import dataclass

from tableau_pipeline.actions.conditions import Op, Predicate, Side
from tableau_pipeline.actions.constants import NULL, Constant, ConstantType, Value, constant
from tableau_pipeline.actions.names import checked_name
from tableau_pipeline.errors import BatchError

_MIRRORED = {Op.GT: Op.LT, Op.LT: Op.GT, Op.GTE: Op.LTE, Op.LTE: Op.GTE}


@dataclass(frozen=True, eq=False)
class Column:
    """A column, to be compared with a column of the other table or with a constant.

    `==`, `!=`, `<`, `<=`, `>` and `>=` return conditions, and raise `BatchError` for values that
    cannot be compared. As in SQL, a comparison with NULL never holds.
    """

    side: Side
    name: str

    def __post_init__(self) -> None:
        checked_name(self.name, what=f"the {self.side} column")

    def __eq__(self, other: "Column | Value") -> Predicate:  # ty: ignore[incompatible-method-override]
        return self._compare(Op.EQ, other)

    def __ne__(self, other: "Column | Value") -> Predicate:  # ty: ignore[incompatible-method-override]
        return self._compare(Op.NEQ, other)

    def __lt__(self, other: "Column | Value") -> Predicate:
        return self._compare(Op.LT, other)

    def __le__(self, other: "Column | Value") -> Predicate:
        return self._compare(Op.LTE, other)

    def __gt__(self, other: "Column | Value") -> Predicate:
        return self._compare(Op.GT, other)

    def __ge__(self, other: "Column | Value") -> Predicate:
        return self._compare(Op.GTE, other)

    __hash__ = None  # == returns a condition, which sets and dictionaries cannot use

    def is_(self, other: "Column | Value | None") -> Predicate:
        """Compare like `==`, but NULL equals NULL.

        Raises:
            BatchError: the values cannot be compared.
        """
        return self.is_null() if other is None else self._compare(Op.IS, other)

    def is_null(self) -> Predicate:
        """Return a condition that holds where the column is NULL."""
        return self._with(Op.IS, NULL)

    def has(self, text: str) -> Predicate:
        """Return a condition that holds where the column contains the text.

        Raises:
            BatchError: the value is not a text.
        """
        found = constant(text, column=str(self))
        if found.type is not ConstantType.STRING:
            raise BatchError(f"{self}.has() looks for a text, not for {text!r:.100}")
        return self._with(Op.HAS, found)

    def __str__(self) -> str:
        return f'{self.side}("{self.name}")'

    def _compare(self, op: Op, other: object) -> Predicate:
        if not isinstance(other, Column):
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


def target(column: str) -> Column:
    """Refer to a column of the published table.

    Raises:
        BatchError: the name is not valid for a column.
    """
    return Column(Side.TARGET, column)


def source(column: str) -> Column:
    """Refer to a column of the uploaded table.

    Raises:
        BatchError: the name is not valid for a column.
    """
    return Column(Side.SOURCE, column)
