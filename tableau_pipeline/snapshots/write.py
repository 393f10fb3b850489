"""Writing a snapshot: one Spark job that stores the rows, hashes them and adds them up."""

import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import CalendarIntervalType, NullType, StructField, StructType

from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.refresh.snapshot import ROW_HASH, DataFile, Fingerprint, Snapshot
from tableau_pipeline.snapshots.row_hash import row_hash
from tableau_pipeline.snapshots.store import commit, is_committed, spark_path


class UnstorableError(Exception):
    """A model has a column that a snapshot cannot hold."""


def write_snapshot(frame: DataFrame, folder: Path, *, asset_key: str, run_id: str) -> Snapshot:
    """Store all rows of a model in a new folder.

    Raises:
        UnstorableError: before anything is written; names the model, the column and the remedy.
    """
    _check(frame.schema, asset_key)
    totals = Observation("totals")
    hashed = frame.withColumn(ROW_HASH, row_hash(frame.schema)).observe(
        totals,
        F.count(F.lit(1)).alias("rows"),
        # A sum of bigints overflows; of decimals it holds 10^10 rows of the largest hash.
        F.sum(F.col(ROW_HASH).cast("decimal(20,0)")).alias("hash_sum"),
    )
    try:
        hashed.write.parquet(spark_path(folder))
        # Sums over no rows are NULL.
        rows, hash_sum = (int(totals.get[name] or 0) for name in ("rows", "hash_sum"))
        snapshot = Snapshot(
            folder=folder,
            asset_key=asset_key,
            created_at=datetime.now(UTC),
            run_id=run_id,
            columns=tuple(
                Column(field.name, field.dataType.simpleString()) for field in frame.schema.fields
            ),
            fingerprint=Fingerprint(rows=rows, hash_sum=hash_sum),
            files=tuple(_data_file(path) for path in sorted(folder.glob("part-*.parquet"))),
        )
        _check_rows(snapshot)
        commit(snapshot)
        return snapshot
    finally:
        if not is_committed(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _data_file(path: Path) -> DataFile:
    rows = pq.read_metadata(path).num_rows
    return DataFile(name=path.name, rows=rows, size=path.stat().st_size)


def _check_rows(snapshot: Snapshot) -> None:
    """Two counts of the same rows, Spark's and the files' own: a lost or doubled file shows."""
    stored = sum(file.rows for file in snapshot.files)
    if stored != snapshot.fingerprint.rows:
        raise RuntimeError(
            f'Model "{snapshot.asset_key}": Spark counted {snapshot.fingerprint.rows:,} rows, but '
            f"the files in {snapshot.folder} hold {stored:,}. Does every executor see that path?"
        )


def _check(schema: StructType, asset_key: str) -> None:
    problems = [problem for field in schema.fields if (problem := _column_problem(field))]
    if not schema.fields:
        problems.append("it has no columns")
    folded = Counter(name.casefold() for name in schema.names)
    problems += [
        f"columns {', '.join(repr(n) for n in schema.names if n.casefold() == name)} differ by "
        "case at most: rename all but one"
        for name, count in folded.items()
        if count > 1
    ]
    if problems:
        raise UnstorableError(f'Model "{asset_key}" cannot be stored: {"; ".join(problems)}.')


def _column_problem(field: StructField) -> str | None:
    if field.name.casefold() == ROW_HASH:
        return f"the column name {ROW_HASH!r} is reserved: rename it"
    if isinstance(field.dataType, NullType):
        return f"column {field.name!r} has no type (void): cast it to the type it should have"
    if isinstance(field.dataType, CalendarIntervalType):
        return f"column {field.name!r} is a calendar interval: cast it to a number"
    return None
