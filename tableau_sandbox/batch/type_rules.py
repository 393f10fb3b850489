"""The rules for comparisons: Hyper itself would silently convert between almost any types."""

from tableauhyperapi import TypeTag

from tableau_sandbox.batch.conditions import (
    ColumnPair,
    Comparison,
    Condition,
    ConstantTest,
    Predicate,
    Side,
    predicates,
)
from tableau_sandbox.batch.constants import ConstantType
from tableau_sandbox.batch.errors import BatchError, Code
from tableau_sandbox.batch.tables import ColumnType, Table

_EQUALITY = frozenset({Comparison.EQ, Comparison.NEQ, Comparison.IS})
_NEVER = frozenset({TypeTag.UNSUPPORTED, TypeTag.INTERVAL, TypeTag.TABGEOGRAPHY, TypeTag.JSON})
_TEXTS = frozenset({TypeTag.TEXT, TypeTag.VARCHAR, TypeTag.CHAR})
_OF_CONSTANTS = {
    ConstantType.BOOLEAN: frozenset({TypeTag.BOOL}),
    ConstantType.INTEGER: frozenset({TypeTag.SMALL_INT, TypeTag.INT, TypeTag.BIG_INT}),
    ConstantType.DOUBLE: frozenset({TypeTag.DOUBLE, TypeTag.NUMERIC, TypeTag.FLOAT}),
    ConstantType.STRING: _TEXTS,
    ConstantType.DATETIME: frozenset({TypeTag.DATE, TypeTag.TIMESTAMP, TypeTag.TIMESTAMP_TZ}),
}


def check_condition(
    condition: Condition, *, target: Table, source: Table | None, action: int
) -> None:
    """Check the comparisons of a condition against the columns of its tables.

    Raises:
        BatchError: a column does not exist, or cannot be compared in this way.
    """
    tables = {Side.TARGET: target, Side.SOURCE: source}
    for predicate in predicates(condition):
        types = [_type(tables[side], name, action) for side, name in _columns(predicate)]
        problem = _problem(predicate, types)
        if problem:
            names = " and ".join(f'{side} column "{name}"' for side, name in _columns(predicate))
            raise BatchError(
                Code.TYPES, f"'{predicate.comparison}' cannot compare {names}: {problem}.", action
            )


def _columns(predicate: Predicate) -> list[tuple[Side, str]]:
    if isinstance(predicate, ColumnPair):
        return [(Side.TARGET, predicate.target), (Side.SOURCE, predicate.source)]
    return [(predicate.side, predicate.column)]


def _type(table: Table | None, column: str, action: int) -> ColumnType:
    if table is None or column not in table.types:
        title = "source table" if table is None else table.title
        raise BatchError(Code.COLUMNS, f'The {title} has no column "{column}".', action)
    return table.types[column]


def _problem(predicate: Predicate, types: list[ColumnType]) -> str | None:
    first = types[0]
    if isinstance(predicate, ConstantTest):
        constant = predicate.constant
        if constant.value is None:
            return None
        if first.type.tag not in _OF_CONSTANTS[constant.type]:
            return f"its type {first} does not go with constants of the type {constant.type}"
    elif first != types[1]:
        return f"their types {first} and {types[1]} differ"
    if predicate.comparison not in _comparisons(first):
        return f"the type {first} does not allow it"
    return None


def _comparisons(type_: ColumnType) -> frozenset[Comparison]:
    if type_.type.tag in _NEVER:
        return frozenset()
    if type_.collation or type_.type.tag is TypeTag.BYTES:
        return _EQUALITY
    has = {Comparison.HAS} if type_.type.tag in _TEXTS else set()
    return frozenset(Comparison) - {Comparison.HAS} | has
