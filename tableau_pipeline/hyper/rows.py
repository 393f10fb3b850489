"""SQL for the rows of Parquet files; hyperd reads only the columns that are used."""

from collections.abc import Sequence

from tableauhyperapi import escape_name

from tableau_pipeline.hyper.tables import TableSource
from tableau_pipeline.hyper.types.literals import string_literal
from tableau_pipeline.hyper.types.spark_types import hyper_type, stored_name, stored_type, value_of


def names(columns: Sequence[str]) -> str:
    """Return column names as a list in SQL."""
    return ", ".join(escape_name(column) for column in columns)


def rows(table: TableSource) -> str:
    """Return a subquery with the columns of `table`, in their Hyper types.

    Raises:
        UnsupportedTypeError: names the table, the column, its type and what to do.
    """
    values, stored = [], []
    for column in table.columns:
        type_ = hyper_type(column, table=table.name)
        # Without files there is nothing to scan, but the columns still need their types.
        value = value_of(column) if table.files else "NULL"
        values.append(f"CAST({value} AS {type_}) AS {escape_name(column.name)}")
        stored.append(f"{escape_name(stored_name(column))} {stored_type(column, type_)}")
    source = f"FROM {_parquet(table.files, columns=stored)}" if table.files else "WHERE FALSE"
    typed = f"(SELECT {', '.join(values)} {source})"
    return f"(SELECT * FROM {typed} typed WHERE {table.where})" if table.where else typed  # noqa: S608


def _parquet(files: Sequence[str], *, columns: Sequence[str]) -> str:
    """Return SQL for Parquet files as one table of these columns.

    hyperd refuses a file in which one of these columns has another type. Other columns may have
    types that hyperd cannot read.
    """
    paths = ", ".join(string_literal(file) for file in files)
    descriptor = f"COLUMNS => DESCRIPTOR({', '.join(columns)})"
    return f"external(ARRAY[{paths}], {descriptor}, FORMAT => 'parquet')"
