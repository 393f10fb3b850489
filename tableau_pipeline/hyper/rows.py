"""The rows of Parquet files as SQL that hyperd runs: it reads only the columns that are used."""

from collections.abc import Sequence

from tableauhyperapi import escape_name, escape_string_literal

from tableau_pipeline.hyper.tables import TableSource
from tableau_pipeline.hyper.types import hyper_type


def names(columns: Sequence[str]) -> str:
    """Column names as a list in SQL."""
    return ", ".join(escape_name(column) for column in columns)


def parquet(files: Sequence[str]) -> str:
    """The SQL that reads Parquet files as one table; there has to be at least one."""
    paths = ", ".join(escape_string_literal(file) for file in files)
    return f"external(ARRAY[{paths}], FORMAT => 'parquet')"


def rows(table: TableSource) -> str:
    """A subquery with the columns of `table`, in their types in Hyper.

    Raises:
        UnsupportedTypeError: names the table, the column, its type and what to do.
    """
    values = []
    for column in table.columns:
        name = escape_name(column.name)
        value = name if table.files else "NULL"
        values.append(f"CAST({value} AS {hyper_type(column, table=table.name)}) AS {name}")
    source = f"FROM {parquet(table.files)}" if table.files else "WHERE FALSE"
    typed = f"(SELECT {', '.join(values)} {source})"
    return f"(SELECT * FROM {typed} typed WHERE {table.where})" if table.where else typed  # noqa: S608
