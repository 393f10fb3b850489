"""Conditions as SQL. The target has the alias "t", the source "s"."""

from datetime import datetime

from tableauhyperapi import TypeTag, escape_name

from tableau_sandbox.batch.conditions import (
    Always,
    ColumnPair,
    Comparison,
    Condition,
    ConstantTest,
    Side,
)
from tableau_sandbox.batch.tables import ColumnType, Table
from tableau_sandbox.hyperd import string_literal

_ALIASES = {Side.TARGET: "t", Side.SOURCE: "s"}
_OPERATORS = {
    Comparison.EQ: "=",
    Comparison.NEQ: "<>",
    Comparison.GT: ">",
    Comparison.LT: "<",
    Comparison.GTE: ">=",
    Comparison.LTE: "<=",
    Comparison.IS: "IS NOT DISTINCT FROM",
}


def aliased(table: Table) -> str:
    """Return a table with the alias that conditions and columns use."""
    return f"{table.name} AS {_ALIASES[table.side]}"


def column_sql(side: Side, name: str) -> str:
    """Return a column of one of the two tables as SQL."""
    return f"{_ALIASES[side]}.{escape_name(name)}"


def condition_sql(condition: Condition, *, target: Table, source: Table | None) -> str:
    """Return a condition for a WHERE or ON clause; `check_condition` must have accepted it."""

    def write(part: Condition) -> str:
        if isinstance(part, Always):
            return "TRUE"
        if isinstance(part, ColumnPair):
            left, right = column_sql(Side.TARGET, part.target), column_sql(Side.SOURCE, part.source)
            return f"{left} {_OPERATORS[part.comparison]} {right}"
        if isinstance(part, ConstantTest):
            table = target if part.side is Side.TARGET or source is None else source
            return _constant_test(part, table.types[part.column])
        operator = " AND " if part.all_of else " OR "
        return f"({operator.join(write(arg) for arg in part.args)})"

    return write(condition)


def _constant_test(test: ConstantTest, type_: ColumnType) -> str:
    column = column_sql(test.side, test.column)
    if test.constant.value is None:
        return f"{column} IS NULL"
    literal = _literal(test.constant.value, type_)
    if test.comparison is Comparison.HAS:
        return f"POSITION({literal} IN {column}) > 0"
    if type_.type.tag is TypeTag.DATE:
        # A day is its midnight in UTC, independent of the session's time zone.
        column = f"CAST({column} AS TIMESTAMP)"
    return f"{column} {_OPERATORS[test.comparison]} {literal}"


def _literal(value: bool | int | float | str | datetime, type_: ColumnType) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int):
        return f"CAST({value} AS BIGINT)"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE PRECISION)"
    if isinstance(value, str):
        return string_literal(value)
    if type_.type.tag is TypeTag.TIMESTAMP_TZ:
        return f"TIMESTAMPTZ '{value.isoformat(' ')}'"
    return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(' ')}'"
