"""Iceberg tables as other engines leave them, and pyiceberg does not."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import _to_partition_representation
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from tableau_pipeline.core.lake_table import InCatalog

CATALOG = "lake"


def sql_catalog(
    monkeypatch: pytest.MonkeyPatch, folder: Path, warehouse: str, **properties: str
) -> SqlCatalog:
    """Return a catalog in SQLite, and name it to pyiceberg."""
    uri = f"sqlite:///{folder}/catalog.db"
    monkeypatch.setenv(f"PYICEBERG_CATALOG__{CATALOG.upper()}__URI", uri)
    made = SqlCatalog(CATALOG, uri=uri, warehouse=warehouse, **properties)
    made.create_namespace("db")
    return made


def in_catalog(table: Table) -> InCatalog:
    """Return where the catalog has a table."""
    return InCatalog(CATALOG, ".".join(table.name()))


def folder_of(table: Table) -> Path:
    """Where a table of a disk is."""
    return Path(table.location().removeprefix("file://"))


def add_hive_files(table: Table, rows: pa.Table) -> None:
    """Add rows as files of a Hive table, which lack the columns of the partitions.

    The partitions are those of the table, which are identities. Neither do the files name field
    ids.
    """
    schema = table.schema()
    if table.name_mapping() is None:
        mapping = schema.name_mapping.model_dump_json()
        with table.transaction() as change:
            change.set_properties({"schema.name-mapping.default": mapping})
    by = [schema.find_field(each.source_id) for each in table.spec().fields]
    files = []
    for number in range(rows.num_rows):
        row = rows.slice(number, 1)
        values = [row[field.name][0].as_py() for field in by]
        part = [
            _to_partition_representation(field.field_type, value)
            for field, value in zip(by, values, strict=True)
        ]
        files.append((row.drop_columns([field.name for field in by]), Record(*part)))
    commit_files(table, files)


def commit_files(
    table: Table,
    files: Iterable[tuple[pa.Table, Record]],
    *,
    content: DataFileContent = DataFileContent.DATA,
) -> None:
    """Write files, each with the values of its partition, and commit them in one snapshot."""
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        for rows, partition in files:
            append.append_data_file(_written(table, rows, partition, content))


def _written(table: Table, rows: pa.Table, partition: Record, content: DataFileContent) -> DataFile:
    path = folder_of(table) / "data" / f"{uuid4()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    unknown: Any = {
        name: {}
        for name in (
            "column_sizes",
            "value_counts",
            "null_value_counts",
            "nan_value_counts",
            "lower_bounds",
            "upper_bounds",
        )
    }
    nothing: Any = dict.fromkeys(("key_metadata", "split_offsets", "equality_ids", "sort_order_id"))
    return DataFile.from_args(
        content=content,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows.num_rows,
        file_size_in_bytes=path.stat().st_size,
        spec_id=table.metadata.default_spec_id,
        **unknown,
        **nothing,
    )
