"""Count the values of columns, in the terms in which a server can count them as well."""

from collections.abc import Mapping

from tableauhyperapi import Connection, escape_name

from tableau_pipeline.core.checkpoint import TableContent
from tableau_pipeline.core.counting import ColumnCounts
from tableau_pipeline.hyper.types.spark_types import hyper_type

# The types whose values all engines order, and write, in the same way.
_WITH_ENDS = frozenset({"SMALLINT", "INTEGER", "BIGINT", "DATE"})


def countable_columns(table: TableContent) -> dict[str, bool]:
    """Return the columns whose values can be counted, and whether their ends can be compared."""
    types = {column.name: hyper_type(column, table="") for column in table.columns}
    return {name: type_ in _WITH_ENDS for name, type_ in types.items() if type_ != "BYTES"}


def count_values(
    connection: Connection, relation: str, columns: Mapping[str, bool]
) -> dict[str, ColumnCounts]:
    """Count the values of columns, by column; `columns` states whether their ends are wanted.

    Args:
        relation: SQL for the rows: a table or a subquery.
    """
    numbers = []
    for column, with_ends in columns.items():
        value = escape_name(column)
        numbers += [f"COUNT({value})", f"COUNT(DISTINCT {value})"]
        if with_ends:
            numbers += [f"CAST({function}({value}) AS TEXT)" for function in ("MIN", "MAX")]
    query = f"SELECT {', '.join(numbers)} FROM {relation} counted"  # noqa: S608
    (row,) = connection.execute_list_query(query)
    found = iter(row)
    counts: dict[str, ColumnCounts] = {}
    for column, with_ends in columns.items():
        values, different = int(str(next(found))), int(str(next(found)))
        ends = (next(found), next(found)) if with_ends else ()
        counts[column] = values, different, *(str(end) for end in ends if end is not None)
    return counts
