"""A query as one SQL statement."""

from dataclasses import dataclass

from tableauhyperapi import TableName

from tableau_sandbox.vds.engine.conditions import condition
from tableau_sandbox.vds.engine.expressions import (
    Expression,
    expression,
    referred,
)
from tableau_sandbox.vds.engine.names import Names
from tableau_sandbox.vds.errors import not_emulated
from tableau_sandbox.vds.query_fields import SortDirection
from tableau_sandbox.vds.requests import Options, Query
from tableau_sandbox.vds.schema import Schema


@dataclass(frozen=True, slots=True)
class Statement:
    """A query in SQL.

    Attributes:
        sql: returns one column for each field of the query.
        columns: these columns.
        is_single: whether it aggregates all rows to one.
    """

    sql: str
    columns: tuple[Expression, ...]
    is_single: bool


def statement(
    query: Query,
    options: Options,
    names: Names,
    *,
    schema: Schema,
    hidden_rows: int = 0,
    always_one: bool = False,
) -> Statement:
    """Return a query that follows the rules as SQL.

    Args:
        query: the query.
        options: those of the request.
        names: what the request can name.
        schema: the version of the service.
        hidden_rows: how many rows the user may not see.
        always_one: whether an aggregate over no rows returns a row. Servers have been seen to send
            hyperd queries that return none.

    Raises:
        VdsError: 400800, 400803, 404935, it refers to nothing; 501000, it is not emulated.
    """
    columns = tuple(expression(field, names, schema) for field in query.fields)
    filters = [(each, referred(each.field, names, schema)) for each in query.filters]
    table = _table(names, {each.table for each in columns} | {about.table for _, about in filters})
    where = [condition(each, about) for each, about in filters if not about.is_aggregate]
    having = [condition(each, about) for each, about in filters if about.is_aggregate]
    grouped = [str(number) for number, column in enumerate(columns, 1) if not column.is_aggregate]
    is_single = not grouped
    if is_single and not always_one:
        having.append("COUNT(1) > 0")
    rows = f"(SELECT * FROM {table} OFFSET {hidden_rows})" if hidden_rows else table  # noqa: S608
    parts = [f"SELECT {', '.join(column.sql for column in columns)} FROM {rows} AS t"]  # noqa: S608
    parts += [f"WHERE {' AND '.join(where)}"] if where else []
    parts += [f"GROUP BY {', '.join(grouped)}"] if grouped else []
    parts += [f"HAVING {' AND '.join(having)}"] if having else []
    parts += _order(query)
    parts += [f"LIMIT {options.row_limit}"] if options.row_limit else []
    return Statement(" ".join(parts), columns, is_single)


def _table(names: Names, identifiers: set[str]) -> str:
    if len(identifiers) != 1:
        raise not_emulated("Queries of several tables")
    (identifier,) = identifiers
    table = names.model.table(identifier)
    if table is None or table.stored is None:
        raise not_emulated("Queries of data that the sandbox does not have")
    return str(TableName(*table.stored))


def _order(query: Query) -> list[str]:
    sorted_by = [
        (field.sort_priority, f"{number} {_DIRECTIONS[field.sort_direction]}")
        for number, field in enumerate(query.fields, 1)
        if field.sort_priority is not None
    ]
    return [f"ORDER BY {', '.join(text for _, text in sorted(sorted_by))}"] if sorted_by else []


_DIRECTIONS = {SortDirection.ASC: "ASC NULLS FIRST", SortDirection.DESC: "DESC NULLS LAST"}
