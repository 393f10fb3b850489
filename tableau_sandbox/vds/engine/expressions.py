"""The fields of queries as SQL. The table has the alias "t"."""

from collections.abc import Mapping
from dataclasses import dataclass

from tableauhyperapi import escape_name

from tableau_sandbox.vds.engine.names import Names
from tableau_sandbox.vds.errors import not_emulated
from tableau_sandbox.vds.filters import FormulaReference, Reference
from tableau_sandbox.vds.formulas import (
    RowCount,
    TableCount,
    parse_formula,
    resolve,
)
from tableau_sandbox.vds.functions import DataType, Function, result_type
from tableau_sandbox.vds.model import ColumnClass, Field
from tableau_sandbox.vds.query_fields import (
    Calculation,
    Dimension,
    Measure,
    QueryField,
)
from tableau_sandbox.vds.schema import Schema

_AGGREGATES: Mapping[Function, str] = {
    Function.SUM: "SUM({})",
    Function.AVG: "AVG({})",
    Function.MEDIAN: "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {})",
    Function.COUNT: "COUNT({})",
    Function.COUNTD: "COUNT(DISTINCT {})",
    Function.MIN: "MIN({})",
    Function.MAX: "MAX({})",
    Function.STDEV: "STDDEV_SAMP({})",
    Function.VAR: "VAR_SAMP({})",
}
# Weeks are left out: they begin on a day that the data source or the site sets.
_PARTS: Mapping[Function, str] = {
    Function.YEAR: "EXTRACT(YEAR FROM {})",
    Function.QUARTER: "EXTRACT(QUARTER FROM {})",
    Function.MONTH: "EXTRACT(MONTH FROM {})",
    Function.DAY: "EXTRACT(DAY FROM {})",
    Function.TRUNC_YEAR: "DATE_TRUNC('year', {})",
    Function.TRUNC_QUARTER: "DATE_TRUNC('quarter', {})",
    Function.TRUNC_MONTH: "DATE_TRUNC('month', {})",
    Function.TRUNC_DAY: "DATE_TRUNC('day', {})",
}
# NUMERIC has too few digits for their steps.
_OF_REALS = (Function.AVG, Function.MEDIAN, Function.STDEV, Function.VAR)
_WITHOUT_JSON = (DataType.SPATIAL, DataType.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Expression:
    """A value that is computed from the rows of one logical table.

    Attributes:
        sql: the SQL.
        table: the identifier of the table.
        data_type: the type of the value.
        is_aggregate: whether it is computed from many rows.
    """

    sql: str
    table: str
    data_type: DataType
    is_aggregate: bool


def expression(field: QueryField, names: Names, schema: Schema) -> Expression:
    """Return a field of a query as SQL.

    Raises:
        VdsError: 400800, 400803, 404935, it refers to nothing; 501000, it is not emulated.
    """
    match field:
        case Calculation():
            return _calculation(field.formula, names, schema)
        case Measure():
            return _applied(field.function, names.field(field.caption))
        case Dimension():
            return _column(names.field(field.caption))
    raise not_emulated("Bins and table calculations")


def referred(reference: Reference, names: Names, schema: Schema) -> Expression:
    """Return what a filter is about as SQL.

    Raises:
        VdsError: as `expression`.
    """
    if isinstance(reference, FormulaReference):
        return _calculation(reference.formula, names, schema)
    field = names.field(reference.caption)
    return _column(field) if reference.function is None else _applied(reference.function, field)


def _calculation(formula: str, names: Names, schema: Schema) -> Expression:
    resolved = resolve(
        parse_formula(formula), columns=names.types(), tables=names.tables(), schema=schema
    )
    if isinstance(resolved, TableCount):
        table = names.table(resolved.table)
        return Expression("COUNT(*)", table.id, DataType.INTEGER, is_aggregate=True)
    if isinstance(resolved, RowCount):
        field = names.field(resolved.column)
        _check_stored(field)
        return Expression("SUM(1)", field.table, DataType.INTEGER, is_aggregate=True)
    return _applied(resolved.function, names.field(resolved.name))


def _applied(function: Function, field: Field) -> Expression:
    template = _AGGREGATES.get(function) or _PARTS.get(function)
    if template is None:
        raise not_emulated(f"The function {function}")
    column = _column(field)
    operand = column.sql
    if function in _OF_REALS:
        operand = f"CAST({operand} AS DOUBLE PRECISION)"
    if function is Function.SUM and field.data_type is DataType.INTEGER:
        # The sum of large numbers is no BIGINT.
        operand = f"CAST({operand} AS NUMERIC(38, 0))"
    elif field.data_type is DataType.BOOLEAN and function in (Function.MIN, Function.MAX):
        # hyperd has no order of truth values.
        template = "BOOL_AND({})" if function is Function.MIN else "BOOL_OR({})"
    return Expression(
        template.format(operand),
        field.table,
        result_type(function, field.data_type),
        is_aggregate=function in _AGGREGATES,
    )


def _column(field: Field) -> Expression:
    column = _check_stored(field)
    if field.data_type in _WITHOUT_JSON:
        raise not_emulated(f"Values of the type {field.data_type}")
    return Expression(f"t.{escape_name(column)}", field.table, field.data_type, is_aggregate=False)


def _check_stored(field: Field) -> str:
    if field.column is None:
        if field.column_class is ColumnClass.COLUMN:
            raise not_emulated("Queries of data that the sandbox does not have")
        raise not_emulated(f"Fields of the class {field.column_class}")
    return field.column
