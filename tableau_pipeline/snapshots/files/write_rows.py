"""Write the rows of a snapshot, on a disk or to an object store, in one Spark job."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tableau_pipeline.core.snapshot import DataFile, Fingerprint
from tableau_pipeline.hyper.parquet.folders import Folder, LocalFolder
from tableau_pipeline.hyper.tables import ROW_HASH
from tableau_pipeline.objects.arrow_files import REPORT, Writer
from tableau_pipeline.objects.object_folder import ObjectFolder
from tableau_pipeline.snapshots.files.spark_paths import spark_path
from tableau_pipeline.snapshots.objects.sending import plainly_named, sent_along, task_errors
from tableau_pipeline.snapshots.partitions import NO_PARTITION, PARTITION, partition_folder
from tableau_pipeline.snapshots.row_hash import stored_fingerprint
from tableau_pipeline.snapshots.spark.session import runs_here
from tableau_pipeline.snapshots.storable import UnstorableError

# "interval month", "interval year" and "interval year to month", in any nested type.
_MONTHS = re.compile(r"interval (year|month)")


@dataclass(frozen=True, slots=True)
class Written:
    """The files and the fingerprint of each partition; under None without partitions.

    Attributes:
        strays: the number of rows that belong to none of the partitions.
    """

    files: Mapping[str | None, tuple[DataFile, ...]]
    fingerprints: Mapping[str | None, Fingerprint]
    strays: int


def write_rows(
    hashed: DataFrame,
    model: Folder,
    folder: str,
    *,
    asset_key: str,
    partitions: Sequence[str] | None = None,
) -> Written:
    """Write rows that have a column with their hashes, and one with their partitions if any.

    Args:
        model: the folder of the model.
        folder: a new folder in it, to which the rows are written.
    """
    keys: Sequence[str | None] = [None] if partitions is None else partitions
    match model:
        case LocalFolder(path):
            return _to_disk(hashed, path / folder, model=path, asset_key=asset_key, keys=keys)
        case ObjectFolder():
            _check_types(hashed.schema, asset_key)
            return _to_objects(hashed, model, folder, asset_key=asset_key, keys=keys)
    raise TypeError(f"{model} is not written to")


def _to_disk(
    hashed: DataFrame, folder: Path, *, model: Path, asset_key: str, keys: Sequence[str | None]
) -> Written:
    by_partition = None not in keys
    # Spark only counts: it would need more time for the sum of the hashes than their reader does.
    # On this host no file can be lost on another disk, and counting costs a small model as much as
    # its hashes.
    counted = None if runs_here(hashed.sparkSession) else Observation()
    rows = hashed.observe(counted, F.count(F.lit(1)).alias("rows")) if counted else hashed
    writer = rows.write.partitionBy(PARTITION) if by_partition else rows.write
    writer.parquet(spark_path(folder))
    files = {key: _files(partition_folder(folder, key) if key else folder, model) for key in keys}
    strays = sum(file.rows for file in _files(folder / NO_PARTITION, model))
    stored = sum(file.rows for each in files.values() for file in each) + strays
    # Two counts of the same rows, Spark's and the files', detect lost files.
    if counted and stored != counted.get["rows"]:
        raise RuntimeError(
            f'Model "{asset_key}": Spark counted {counted.get["rows"]:,} rows, but the '
            f"files in {folder} hold {stored:,}. Does every executor see that path?"
        )
    fingerprints = {
        key: stored_fingerprint(model / file.name for file in each) for key, each in files.items()
    }
    return Written(files, fingerprints, strays)


def _check_types(schema: StructType, asset_key: str) -> None:
    """Refuse the one type for which Arrow has no values in Python."""
    names = [field.name for field in schema if _MONTHS.search(field.dataType.simpleString())]
    if names:
        raise UnstorableError(
            f'Model "{asset_key}": column {names[0]!r} holds an interval of months, which is not '
            "stored in an object store: cast it to a number of months."
        )


def _files(folder: Path, model: Path) -> tuple[DataFile, ...]:
    return tuple(
        DataFile(
            name=path.relative_to(model).as_posix(),
            rows=pq.read_metadata(path).num_rows,
            size=path.stat().st_size,
        )
        for path in sorted(folder.glob("part-*.parquet"))
    )


def _to_objects(
    hashed: DataFrame,
    model: ObjectFolder,
    folder: str,
    *,
    asset_key: str,
    keys: Sequence[str | None],
) -> Written:
    by_partition = None not in keys
    # Sorted, a task writes one file after the other instead of all at a time.
    placed = hashed.sortWithinPartitions(PARTITION) if by_partition else hashed
    schema = hashed.drop(PARTITION).schema
    writer = Writer(
        url=model.url,
        folder=f"{model.key}/{folder}",
        spark_schema=schema.json(),
        columns=schema.names,
        row_hash=schema.names.index(ROW_HASH),
        by_partition=by_partition,
    )
    files: dict[str | None, list[DataFile]] = {key: [] for key in keys}
    sums: dict[str | None, Fingerprint] = {key: Fingerprint(rows=0, hash_sum=0) for key in keys}
    strays = 0
    # Only what the successful attempt of a task reports is named by the version: files of others
    # are never read.
    with task_errors():
        reports = plainly_named(placed).mapInArrow(sent_along(writer), REPORT).collect()
    for each in reports:
        if not each.name:
            strays += each.rows
            continue
        name = f"{folder}/{each.name}"
        files[each.partition].append(DataFile(name=name, rows=each.rows, size=each.size))
        sums[each.partition] += Fingerprint(rows=each.rows, hash_sum=int(each.hash_sum))
    if not any(files.values()) and not strays:
        # Types are read from a file: their texts do not quote the names inside of them.
        with task_errors():
            name, size = writer.empty(keys[0], plainly_named(hashed.limit(0)).toArrow().schema)
        files[keys[0]].append(DataFile(name=f"{folder}/{name}", rows=0, size=size))
    if missing := model.missing([file.name for each in files.values() for file in each]):
        raise RuntimeError(
            f'Model "{asset_key}": Spark wrote {missing[0]}, but there is no such object as seen '
            "from here. Give the executors the same endpoint and credentials as this process."
        )
    ordered = {key: tuple(sorted(each, key=lambda file: file.name)) for key, each in files.items()}
    return Written(ordered, sums, strays)
