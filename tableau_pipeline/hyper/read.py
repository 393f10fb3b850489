"""Looking into `.hyper` files."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from tableauhyperapi import HyperProcess, TableName, escape_string_literal

from tableau_pipeline.hyper.process import connect


def table_names(hyper: HyperProcess, path: Path) -> list[TableName]:
    """The tables of a file, over all its schemas, by name."""
    with connect(hyper, path) as connection:
        catalog = connection.catalog
        return sorted(
            (
                name
                for schema in catalog.get_schema_names()
                for name in catalog.get_table_names(schema)
            ),
            key=str,
        )


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
