"""A data source that reads a lake table, and Iceberg tables as other engines write them."""

import gzip
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
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

from tableau_pipeline.core.declaration import Guard, Reconcile
from tableau_pipeline.core.lake_table import InCatalog, LakeFormat, LakeTable
from tableau_pipeline.core.policies import Diff, Policy
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, published_rows

LAX = Guard(min_rows=0, max_shrink=1)
BY_ID = Diff(("id",))


def follow(
    pipeline: Pipeline,
    format_: LakeFormat,
    location: Path | str | InCatalog,
    policy: Policy = BY_ID,
    **more: object,
) -> None:
    """Declare that the only table of a data source comes from a lake table."""
    where = location if isinstance(location, InCatalog) else str(location)
    source = LakeTable(**{format_: where})
    (table,) = pipeline.declaration.tables
    # Only counts are reconciled: the tests themselves compare all published rows.
    pipeline.declare(
        tables=(replace(table, source=source, policy=policy, guard=LAX, **more),),
        reconcile=Reconcile(),
        on_schema_change="publish",
    )


def published(pipeline: Pipeline) -> list[str]:
    """The rows of the published data source, as `in_order` returns them."""
    (item,) = pipeline.found()
    return in_order(published_rows(pipeline.eyes, str(item.id)))


def in_order(rows: pa.Table) -> list[str]:
    """Rows as sorted texts, which are the same for every writer of a table."""
    columns = sorted(rows.schema.names)
    return sorted(str([_plain(row[name]) for name in columns]) for row in rows.to_pylist())


def _plain(value: object) -> object:
    tz = getattr(value, "tzinfo", None)
    # Tableau's type for dates with times has no zone.
    return value.replace(tzinfo=None) if tz else value


def rows_of(ids: Iterable[int], word: str = "a") -> pa.Table:
    """Rows with an id and a word."""
    ids = list(ids)
    words = pa.array([f"{word}{n}" for n in ids], pa.string())
    return pa.table({"id": pa.array(ids, pa.int64()), "word": words})


def values_of_all_types() -> pa.Table:
    """Rows with values that a writer or a reader may confuse with other values."""
    moment = datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC)
    prices = [Decimal("-0.01"), Decimal("99999999.99"), None, Decimal(0)]
    return pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int64()),
            "word": ["a b", "c%d/é='\\", "", None],
            "day": pa.array([date(1, 1, 1), date(9999, 12, 31), None, date(1970, 1, 1)]),
            "at": pa.array([moment, None, moment, moment], pa.timestamp("us", "UTC")),
            "local": pa.array([moment.replace(tzinfo=None)] * 4, pa.timestamp("us")),
            "price": pa.array(prices, pa.decimal128(10, 2)),
            "big": pa.array([Decimal("1e30")] * 4, pa.decimal128(38, 4)),
            "tiny": pa.array([-128, 127, None, 0], pa.int8()),
            "small": pa.array([-32768, 32767, None, 0], pa.int16()),
            "plain": pa.array([-(2**31), 2**31 - 1, None, 0], pa.int32()),
            "single": pa.array([1.5, float("inf"), None, -0.0], pa.float32()),
            "double": pa.array([1e300, float("-inf"), None, 0.1]),
            "flag": [True, False, None, True],
            "raw": pa.array([b"\x00\xff", b"", None, b"x"]),
        }
    )


CATALOG = "lake"


def sql_catalog(
    monkeypatch: pytest.MonkeyPatch, folder: Path, warehouse: str, **properties: str
) -> SqlCatalog:
    """Make a catalog in SQLite, and let an environment variable name it to pyiceberg."""
    uri = f"sqlite:///{folder}/catalog.db"
    monkeypatch.setenv(f"PYICEBERG_CATALOG__{CATALOG.upper()}__URI", uri)
    made = SqlCatalog(CATALOG, uri=uri, warehouse=warehouse, **properties)
    made.create_namespace("db")
    return made


def table_of(catalog: SqlCatalog, rows: pa.Table, name: str = "orders") -> Table:
    """Return a new table with the rows."""
    made = catalog.create_table(f"db.{name}", schema=rows.schema)
    if rows.num_rows:
        made.append(rows)
    return made


def in_catalog(table: Table) -> InCatalog:
    """Return the place of a table in its catalog."""
    return InCatalog(CATALOG, ".".join(table.name()))


class HadoopTable:
    """A table without a catalog. Its versions are numbered files, and a hint names one version.

    pyiceberg needs a catalog and writes its metadata to another folder. This class copies the
    metadata.
    """

    def __init__(self, catalog: SqlCatalog, name: str, rows: pa.Table) -> None:
        elsewhere = {"write.metadata.path": f"{catalog.properties['warehouse']}/metadata"}
        self.table = catalog.create_table(f"db.{name}", schema=rows.schema, properties=elsewhere)
        self.path = folder_of(self.table)
        self.metadata = self.path / "metadata"
        self.metadata.mkdir(parents=True)
        self.number = 0
        self.append(rows)

    def append(self, rows: pa.Table, *, hint: int | None = None) -> None:
        """Commit more rows. The hint then names their version, or the version `hint`."""
        self.table.append(rows)
        self.number += 1
        self.write(f"v{self.number}.metadata.json")
        self.hint(str(hint or self.number))

    def write(self, name: str) -> None:
        """Write the current metadata under a name."""
        content = Path(self.table.metadata_location.removeprefix("file://")).read_bytes()
        is_compressed = ".gz" in name
        (self.metadata / name).write_bytes(gzip.compress(content) if is_compressed else content)

    def hint(self, text: str) -> None:
        """Write the hint."""
        (self.metadata / "version-hint.text").write_text(text)

    def rows(self) -> list[str]:
        """All rows of pyiceberg's newest version, whatever version the hint names."""
        return in_order(self.table.scan().to_arrow())


def folder_of(table: Table) -> Path:
    """The folder of a table that is on disk."""
    return Path(table.location().removeprefix("file://"))


def add_hive_files(table: Table, rows: pa.Table) -> None:
    """Add rows as files of a Hive table, which lack partition columns and field ids.

    All partition fields of the table must have the identity transform.
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


def commit_files(table: Table, files: Iterable[tuple[pa.Table, Record]]) -> None:
    """Write files, each with the values of its partition, and commit them in one snapshot."""
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        for rows, partition in files:
            append.append_data_file(_written(table, rows, partition))


def _written(table: Table, rows: pa.Table, partition: Record) -> DataFile:
    path = folder_of(table) / "data" / f"{uuid4()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    counts = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
    unknown: Any = {name: {} for name in (*counts, "lower_bounds", "upper_bounds")}
    nothing: Any = dict.fromkeys(("key_metadata", "split_offsets", "equality_ids", "sort_order_id"))
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows.num_rows,
        file_size_in_bytes=path.stat().st_size,
        spec_id=table.metadata.default_spec_id,
        **unknown,
        **nothing,
    )
