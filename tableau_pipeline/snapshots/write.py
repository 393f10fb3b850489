"""Writing snapshots: one Spark job that stores the rows, hashes them and adds them up."""

import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tableau_pipeline.core.snapshot import ROW_HASH, DataFile, Fingerprint, Snapshot, Span
from tableau_pipeline.hyper.tables import Column, json_text
from tableau_pipeline.snapshots.partitions import PartitionError, Window, with_partition
from tableau_pipeline.snapshots.row_hash import (
    hash_parts,
    json_values,
    row_hash,
    sum_of_hashes,
)
from tableau_pipeline.snapshots.storable import check_storable
from tableau_pipeline.snapshots.store import (
    PARTITION,
    commit,
    is_committed,
    partition_folder,
    partition_folders,
    spark_path,
)


def write_snapshot(
    frame: DataFrame,
    folder: Path,
    *,
    asset_key: str,
    run_id: str,
    before_commit: Callable[[], None] = lambda: None,
) -> Snapshot:
    """Store all rows of a model in a new folder.

    Args:
        before_commit: looks at what is known once the rows are stored; if it raises, nothing stays.

    Raises:
        UnstorableError: before anything is written; names the model, the column and the remedy.
    """
    check_storable(frame.schema, asset_key)
    with _all_or_nothing(folder):
        fingerprint, _ = _store(_hashed(frame), folder)
        snapshot = Snapshot(
            folder=folder,
            asset_key=asset_key,
            created_at=datetime.now(UTC),
            run_id=run_id,
            columns=columns_of(frame),
            fingerprint=fingerprint,
            files=_files(folder),
            comments=_comments(frame),
        )
        _check_rows(fingerprint, [snapshot])
        before_commit()
        commit(snapshot)
    return snapshot


def write_partitions(
    frame: DataFrame,
    folder: Path,
    *,
    expression: str,
    partitions: Mapping[str, Window] | Sequence[str],
    asset_key: str,
    run_id: str,
    before_commit: Callable[[], None] = lambda: None,
) -> list[Snapshot]:
    """Store the rows of some partitions of a model in a new folder, a snapshot for each.

    A partition without rows gets a snapshot too: it holds none.

    Args:
        before_commit: looks at what is known once the rows are stored; if it raises, nothing stays.

    Raises:
        UnstorableError: before anything is written; names the model, the column and the remedy.
        PartitionError: a row belongs to none of the partitions.
    """
    check_storable(frame.schema, asset_key)
    with _all_or_nothing(folder):
        placed = with_partition(_hashed(frame), expression, partitions)
        fingerprint, strays = _store(placed, folder, by_partition=True)
        if strays:
            raise PartitionError(
                f'Model "{asset_key}": {strays:,} row{"s" * (strays > 1)} lie outside the '
                f"partition{'s' * (len(partitions) > 1)} of this run by {expression}, for "
                f"instance {_stray(placed, expression)}. Filter the model by the partition."
            )
        snapshots = []
        for key in partitions:
            part = partition_folder(folder, key)
            part.mkdir(exist_ok=True)
            files = _files(part)
            snapshots.append(
                Snapshot(
                    folder=part,
                    asset_key=asset_key,
                    partition=key,
                    span=_span(partitions[key]) if isinstance(partitions, Mapping) else None,
                    created_at=datetime.now(UTC),
                    run_id=run_id,
                    columns=columns_of(frame),
                    fingerprint=_fingerprint(part, files),
                    files=files,
                    comments=_comments(frame),
                )
            )
        _check_rows(fingerprint, snapshots)
        before_commit()
        for snapshot in snapshots:
            commit(snapshot)
    return snapshots


def columns_of(frame: DataFrame) -> tuple[Column, ...]:
    """The columns of a model as its snapshots name them."""
    return tuple(Column(field.name, field.dataType.simpleString()) for field in frame.schema.fields)


def _span(window: Window) -> Span:
    return Span(start=window.start, end=window.end, zone=window.zone)


@contextmanager
def _all_or_nothing(folder: Path) -> Generator[None]:
    """A folder in which nothing was committed is of no use to anybody."""
    try:
        yield
    finally:
        if not any(map(is_committed, (folder, *partition_folders(folder)))):
            shutil.rmtree(folder, ignore_errors=True)


def _hashed(frame: DataFrame) -> DataFrame:
    """With the columns that only we use: the JSON of what is nested, and the hash of each row."""
    texts = {json_text(name): value for name, value in json_values(frame.schema).items()}
    return frame.withColumns({**texts, ROW_HASH: row_hash(frame.schema)})


def _comments(frame: DataFrame) -> dict[str, str]:
    comments = {field.name: field.metadata.get("comment") for field in frame.schema.fields}
    return {name: comment for name, comment in comments.items() if comment}


def _store(
    hashed: DataFrame, folder: Path, *, by_partition: bool = False
) -> tuple[Fingerprint, int]:
    """Run the job; the fingerprint of all rows, and how many of them have no partition."""
    totals = Observation("totals")
    stray = F.col(PARTITION).isNull() if by_partition else F.lit(False)
    observed = hashed.observe(
        totals,
        F.count(F.lit(1)).alias("rows"),
        *(F.sum(part).alias(name) for name, part in hash_parts(F.col(ROW_HASH)).items()),
        F.count_if(stray).alias("strays"),
    )
    writer = observed.write.partitionBy(PARTITION) if by_partition else observed.write
    writer.parquet(spark_path(folder))
    found = totals.get
    return Fingerprint(rows=found["rows"], hash_sum=sum_of_hashes(found)), found["strays"]


def _stray(placed: DataFrame, expression: str) -> object:
    (row,) = placed.where(F.col(PARTITION).isNull()).select(F.expr(expression)).take(1)
    return row[0]


def _files(folder: Path) -> tuple[DataFile, ...]:
    return tuple(
        DataFile(name=path.name, rows=pq.read_metadata(path).num_rows, size=path.stat().st_size)
        for path in sorted(folder.glob("part-*.parquet"))
    )


def _fingerprint(folder: Path, files: Sequence[DataFile]) -> Fingerprint:
    """Of one partition; Spark's own sum has no groups."""
    total = 0
    for file in files:
        hashes = pq.read_table(folder / file.name, columns=[ROW_HASH], partitioning=None)[ROW_HASH]
        total += int(pc.call_function("sum", [hashes.cast(pa.decimal128(38, 0))]).as_py() or 0)
    return Fingerprint(rows=sum(file.rows for file in files), hash_sum=total)


def _check_rows(fingerprint: Fingerprint, snapshots: Sequence[Snapshot]) -> None:
    """Two counts of the same rows, Spark's and the files' own: a lost or doubled file shows."""
    stored = sum(file.rows for snapshot in snapshots for file in snapshot.files)
    if stored != fingerprint.rows:
        raise RuntimeError(
            f'Model "{snapshots[0].asset_key}": Spark counted {fingerprint.rows:,} rows, but the '
            f"files below {snapshots[0].folder} hold {stored:,}. Does every executor see that path?"
        )
