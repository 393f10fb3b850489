"""What hyperd does with Parquet files on its own: the floor, and an independent look."""

from collections.abc import Sequence
from pathlib import Path

from tableauhyperapi import HyperProcess, TableName, escape_name

from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.types import string_literal


def scan(files: Sequence[str]) -> str:
    """The files as one relation in SQL."""
    paths = ", ".join(string_literal(file) for file in files)
    return f"external(ARRAY[{paths}], FORMAT => 'parquet')"


def differing_rows(
    hyper: HyperProcess,
    path: Path,
    table: TableName,
    *,
    files: Sequence[str],
    columns: Sequence[str],
    key: Sequence[str],
    slices: int = 1,
) -> int:
    """Rows of a table, or of Parquet files, without an equal on the other side.

    Args:
        key: identifies the rows of the files; where those of the table repeat, they differ.
        slices: how many to compare one after the other, which takes less memory; more than one
            if the first column of the key is a number.
    """
    same_key = " AND ".join(f"t.{c} = f.{c}" for c in map(escape_name, key))
    differs = " OR ".join(f"t.{c} IS DISTINCT FROM f.{c}" for c in map(escape_name, columns))
    differing = 0
    with connect(hyper, path) as connection:
        rows = connection.execute_scalar_query(f"SELECT COUNT(*) FROM {table}")
        wanted = connection.execute_scalar_query(f"SELECT COUNT(*) FROM {scan(files)}")
        for number in range(slices):
            some = f"WHERE MOD({escape_name(key[0])}, {slices}) = {number}" if slices > 1 else ""
            differing += connection.execute_scalar_query(
                f"SELECT COUNT(*) FROM (SELECT * FROM {table} {some}) t "
                f"FULL JOIN (SELECT * FROM {scan(files)} {some}) f ON {same_key} WHERE {differs}"
            )
    return differing + abs(rows - wanted)
