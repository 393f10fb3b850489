"""Parquet files for extracts, facts about an extract, and a way to kill a hyperd."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tableauhyperapi import Connection, HyperException, HyperProcess, TableName

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.hyper.build import Extract, build_extract
from tableau_pipeline.hyper.hyper_file import read_table
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.types import EXTRACT_SCHEMA, Column

_SPARK_NAMES = {"int64": "bigint", "int32": "int", "string": "string"}


def source(
    folder: Path, name: str, columns: dict[str, list[Any]] | pa.Table, *, files: int = 1
) -> TableSource:
    """Store columns in some Parquet files, and return the table of these files."""
    rows = columns if isinstance(columns, pa.Table) else pa.table(columns)
    # A column that has only NULLs has no type of its own: give it the type of integers.
    types = [pa.int64() if pa.types.is_null(kind) else kind for kind in rows.schema.types]
    rows = rows.cast(pa.schema(list(zip(rows.column_names, types, strict=True))))
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(files):
        path = folder / f"{len(list(folder.iterdir()))}.parquet"
        pq.write_table(rows.take(pa.array(range(number, rows.num_rows, files), pa.int64())), path)
        paths.append(str(path))
    named = tuple(Column(field.name, _SPARK_NAMES[str(field.type)]) for field in rows.schema)
    return TableSource(name, named, tuple(paths))


def stored_source(snapshot: Snapshot, name: str = "Extract") -> TableSource:
    """A table with the rows of a snapshot."""
    return TableSource(name, snapshot.columns, snapshot.paths, comments=snapshot.comments)


def build_one(hyper: HyperProcess, path: Path, table: TableSource) -> Extract:
    return build_extract(hyper, path, tables=[table])


def rows_of(hyper: HyperProcess, path: Path, table: str = "Extract") -> pa.Table:
    """The rows of a table, sorted by the first column."""
    rows = read_table(hyper, path, TableName(EXTRACT_SCHEMA, table))
    return rows.sort_by(rows.column_names[0])


def constraints(hyper: HyperProcess, path: Path) -> list[tuple[str, str, str]]:
    """The assumed keys of a file: ("p", table, "") for primary, ("f", many, one) for foreign."""
    with Connection(hyper.endpoint, path) as connection:
        found = connection.execute_list_query(
            "SELECT k.contype, t.relname, COALESCE(r.relname, '') FROM pg_catalog.pg_constraint k "
            "JOIN pg_catalog.pg_class t ON t.oid = k.conrelid "
            "LEFT JOIN pg_catalog.pg_class r ON r.oid = k.confrelid"
        )
    return sorted((kind, table, to) for kind, table, to in found)


def process_id(hyper: HyperProcess) -> int:
    """The process ID of a hyperd."""
    return int(hyper.endpoint.connection_descriptor.rpartition(".")[2])


def kill(hyper: HyperProcess) -> int:
    """Kill a hyperd, as a damaged file would; return its process ID."""
    process = process_id(hyper)
    os.kill(process, signal.SIGKILL)
    while _answers(hyper):
        time.sleep(0.001)
    return process


def _answers(hyper: HyperProcess) -> bool:
    try:
        Connection(hyper.endpoint).close()
    except HyperException:
        return False
    return True
