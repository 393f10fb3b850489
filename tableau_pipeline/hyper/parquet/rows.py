"""SQL for the rows of Parquet files; hyperd reads only the columns that are used."""

from collections.abc import Sequence

from tableauhyperapi import escape_name

from tableau_pipeline.hyper.tables import Layout, StoredColumn, TableSource
from tableau_pipeline.hyper.types.literals import string_literal
from tableau_pipeline.hyper.types.row_text import with_row_hash
from tableau_pipeline.hyper.types.spark_types import hyper_type, stored_name, stored_type, value_of

_UNION = " UNION ALL "


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
    if table.layouts:
        source = f"FROM {_in_layouts(table)}"
    elif table.files:
        source = f"FROM {_parquet(table, table.files, columns=stored)}"
    else:
        source = "WHERE FALSE"
    typed = f"(SELECT {', '.join(values)} {source})"
    return f"(SELECT * FROM {typed} typed WHERE {table.where})" if table.where else typed  # noqa: S608


def _parquet(table: TableSource, files: Sequence[str], *, columns: Sequence[str]) -> str:
    """Return SQL for some files of a table, with these columns.

    hyperd refuses a file in which one of these columns has another type. Other columns may have
    types that hyperd cannot read.
    """
    sources = ", ".join(table.folder.sources(files))
    # An external table needs a column, even where all values come from elsewhere.
    descriptor = f"COLUMNS => DESCRIPTOR({', '.join(columns)}), " if columns else ""
    return f"external(ARRAY[{sources}], {descriptor}FORMAT => 'parquet')"


def _in_layouts(table: TableSource) -> str:
    """Return a subquery with all columns of the layouts and the hash of each row."""
    parts = [_in_layout(table, layout, files) for layout, files in table.layouts.items()]
    first, *_ = table.layouts
    # Hashed as it is stored, whatever types a data source declares.
    columns = [each.column for each in first]
    return f"{with_row_hash(f'({_UNION.join(parts)}) united', columns)} stored"


def _in_layout(table: TableSource, layout: Layout, files: Sequence[str]) -> str:
    values = ", ".join(f"{_value(each)} AS {escape_name(each.column.name)}" for each in layout)
    stored = [f"{escape_name(each.name)} {_type(each)}" for each in layout if each.name]
    return f"SELECT {values} FROM {_parquet(table, files, columns=stored)} stored"  # noqa: S608


def _value(stored: StoredColumn) -> str:
    if stored.name:
        return escape_name(stored.name)
    value = "NULL" if stored.value is None else string_literal(stored.value)
    return f"CAST({value} AS {_type(stored)})"


def _type(stored: StoredColumn) -> str:
    return stored_type(stored.column, hyper_type(stored.column, table=""))
