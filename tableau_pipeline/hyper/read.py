"""Read a `.hyper` file with a single call."""

from pathlib import Path

import pyarrow as pa
from tableauhyperapi import HyperProcess, TableName

from tableau_pipeline.hyper.open_file import open_hyper


def table_columns(hyper: HyperProcess, path: Path) -> dict[TableName, dict[str, str]]:
    """Return the SQL types of the columns of each table of a file, by name and in order."""
    with open_hyper(path, hyper=hyper) as file:
        return {table: file.columns(table) for table in file.table_names()}


def read_table(hyper: HyperProcess, path: Path, table: TableName) -> pa.Table:
    """Read the rows of a table, in no particular order."""
    with open_hyper(path, hyper=hyper) as file:
        return file.read(table)
