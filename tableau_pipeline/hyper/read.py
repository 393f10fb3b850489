"""Looking into `.hyper` files."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from tableauhyperapi import Catalog, HyperProcess, TableName, escape_string_literal

from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.sql_types import sql_type


def table_names(hyper: HyperProcess, path: Path) -> list[TableName]:
    """The tables of a file, over all its schemas, by name."""
    with connect(hyper, path) as connection:
        return _table_names(connection.catalog)


def table_columns(hyper: HyperProcess, path: Path) -> dict[TableName, dict[str, str]]:
    """The SQL types of the columns of each table of a file, by name and in order."""
    with connect(hyper, path) as connection:
        catalog = connection.catalog
        return {
            table: {
                column.name.unescaped: sql_type(column.type, column.collation)
                for column in catalog.get_table_definition(table).columns
            }
            for table in _table_names(catalog)
        }


def read_table(hyper: HyperProcess, path: Path, table: TableName) -> pa.Table:
    """The rows of a table as Arrow, in no particular order.

    hyperd writes them as Parquet and Arrow reads that: no row passes through Python.
    """
    with TemporaryDirectory() as folder, connect(hyper, path) as connection:
        file = Path(folder) / "rows.parquet"
        connection.execute_command(
            f"COPY (SELECT * FROM {table}) "  # noqa: S608
            f"TO {escape_string_literal(str(file))} WITH (FORMAT PARQUET)"
        )
        return pq.read_table(file, memory_map=False)


def _table_names(catalog: Catalog) -> list[TableName]:
    return sorted(
        (name for schema in catalog.get_schema_names() for name in catalog.get_table_names(schema)),
        key=str,
    )
