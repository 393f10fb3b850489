"""Let hyperd read Parquet files directly, without the code of the pipeline.

Benchmarks use this as the least work of a build, and for an independent comparison of rows.
"""

from collections.abc import Sequence
from pathlib import Path

from tableauhyperapi import HyperProcess, TableName, escape_name

from tableau_pipeline.hyper.process import connect
from tableau_pipeline.hyper.types import string_literal


def scan(files: Sequence[str]) -> str:
    """Return the SQL expression that reads Parquet files as one relation."""
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
    """Count the rows of a table and of Parquet files that have no equal row on the other side.

    If the table and the files differ in their number of rows, the difference is added to the count.

    Args:
        key: the columns that identify a row of the files.
        slices: the number of parts that are compared one after the other; more parts take less
            memory. With more than one part, the first column of the key must be a number.
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
