"""Write versions: one Spark job stores the rows with their hashes and counts them."""

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType, DateType, StructType, TimestampNTZType, TimestampType

from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Origin, Part, Snapshot, Span
from tableau_pipeline.errors import DamagedSnapshotError
from tableau_pipeline.hyper.tables import ROW_HASH, Column, Folder, LocalFolder, json_text
from tableau_pipeline.objects.arrow_files import REPORT, Writer
from tableau_pipeline.objects.stores import ObjectFolder, StoreError
from tableau_pipeline.snapshots.object_storage import plainly_named, sent_along, task_errors
from tableau_pipeline.snapshots.row_hash import json_values, row_hash, stored_fingerprint
from tableau_pipeline.snapshots.spark import runs_here
from tableau_pipeline.snapshots.store import SnapshotStore, succeeding

# Paths in the form that Spark expects.


# Spark treats a path to read as a glob pattern.
_GLOB = re.compile(r"[\\{}\[\]*?]")


def spark_path(path: Path) -> str:
    """Return a path with its scheme, and without escapes."""
    return f"file://{path}"


def exact_path(path: Path) -> str:
    """Escape a path so that Spark reads exactly this path."""
    return _GLOB.sub(r"\\\g<0>", spark_path(path))


# Determine with Spark the partition of each row.


# The column by which Spark divides a write into folders.
PARTITION = "_partition"
# The folder of rows that belong to none: Spark's ExternalCatalogUtils.DEFAULT_PARTITION_NAME.
NULL_KEY = "__HIVE_DEFAULT_PARTITION__"
NO_PARTITION = f"{PARTITION}={NULL_KEY}"
# Spark's ExternalCatalogUtils.escapePathName
_ESCAPED = set("\"#%'*/:=?\\\x7f{[]^")


@dataclass(frozen=True, slots=True)
class Window:
    """The time that a partition covers: `start` inclusive, `end` exclusive; both in one zone."""

    start: datetime
    end: datetime

    @property
    def zone(self) -> str:
        """The name of the zone."""
        return str(self.start.tzinfo)


class PartitionError(Exception):
    """The rows do not fit the partitions."""


def partition_folder(folder: Path, key: str) -> Path:
    """Return the folder to which Spark writes a partition, with Spark's escaping."""
    escaped = "".join(f"%{ord(c):02X}" if c in _ESCAPED or ord(c) < 32 else c for c in key)
    return folder / f"{PARTITION}={escaped}"


def with_partition(
    frame: DataFrame, expression: str, partitions: Mapping[str, Window] | Sequence[str]
) -> DataFrame:
    """Add a column `_partition` with the key of each row's partition, NULL for none.

    Args:
        expression: SQL over the columns of the frame. A date or a `timestamp_ntz` is the wall
            clock time in the partitions' zone, a `timestamp` is an instant.
        partitions: windows by key, or the keys that the expression itself returns.

    Raises:
        PartitionError: the type of the expression cannot be compared with windows.
    """
    value = F.expr(expression)
    if not isinstance(partitions, Mapping):
        text = value.cast("string")
        # Any other key becomes NULL, by which the write recognizes a stray row.
        return frame.withColumn(PARTITION, F.when(text.isin(list(partitions)), text))
    type_ = frame.select(value).schema.fields[0].dataType
    # A lookup by day has a row for each day; one by minute has 1,440 times as many.
    whole_days = all(_is_midnight(edge) for w in partitions.values() for edge in (w.start, w.end))
    zone = next(iter(partitions.values())).zone
    moment = _day(value, type_, zone) if whole_days else _minute(value, type_, zone)
    if moment is None:
        wanted = "a date or a timestamp" if whole_days else "a timestamp, not a date"
        raise PartitionError(f"{expression} is {type_.simpleString()}, but has to be {wanted}")
    # A join on equality: comparing each row with each window would cost their product.
    moments = _days(partitions) if whole_days else _minutes(partitions)
    lookup = frame.sparkSession.createDataFrame(
        list(moments), f"__moment {'DATE' if whole_days else 'TIMESTAMP'}, {PARTITION} STRING"
    )
    return (
        frame.withColumn("__moment", moment)
        .join(F.broadcast(lookup), "__moment", "left")
        .drop("__moment")
    )


def _is_midnight(moment: datetime) -> bool:
    return (moment.hour, moment.minute, moment.second) == (0, 0, 0)


def _day(value: SparkColumn, type_: DataType, zone: str) -> SparkColumn | None:
    """Return the day in the calendar of the zone; the session's own zone is UTC."""
    if isinstance(type_, TimestampType):
        return F.from_utc_timestamp(value, zone).cast("date")
    return value.cast("date") if isinstance(type_, DateType | TimestampNTZType) else None


def _minute(value: SparkColumn, type_: DataType, zone: str) -> SparkColumn | None:
    """Return the instant truncated to the minute: all Dagster windows begin on a full minute."""
    if isinstance(type_, TimestampNTZType):
        value = F.to_utc_timestamp(value.cast("timestamp"), zone)
    return F.date_trunc("minute", value) if not isinstance(type_, DateType) else None


def _days(windows: Mapping[str, Window]) -> Iterator[tuple[date, str]]:
    for key, window in windows.items():
        for number in range((window.end.date() - window.start.date()).days):
            yield window.start.date() + timedelta(days=number), key


def _minutes(windows: Mapping[str, Window]) -> Iterator[tuple[datetime, str]]:
    for key, window in windows.items():
        # Steps in local time would repeat or skip an hour when the clocks change.
        moment, end = window.start.astimezone(UTC), window.end.astimezone(UTC)
        while moment < end:
            yield moment, key
            moment += timedelta(minutes=1)


# Refuse what a snapshot cannot hold, by model and column.


_UNHASHABLE = (T.ArrayType, T.BinaryType, T.StructType)
_RESERVED = {ROW_HASH, PARTITION}


class UnstorableError(Exception):
    """A model has a column that a snapshot cannot hold."""


def check_storable(schema: T.StructType, asset_key: str) -> None:
    """Refuse types that Parquet cannot hold, and names that are empty, reserved or alike.

    Raises:
        UnstorableError: lists all problems.
    """
    reserved = _RESERVED | {json_text(name).casefold() for name in schema.names}
    problems = [problem for field in schema.fields if (problem := _column_problem(field, reserved))]
    problems += [
        f"the name of column {position} is empty: name it"
        for position, name in enumerate(schema.names, 1)
        if not name
    ]
    if not schema.fields:
        problems.append("it has no columns")
    folded = Counter(name.casefold() for name in schema.names)
    problems += [
        f"columns {', '.join(repr(n) for n in schema.names if n.casefold() == name)} differ only "
        "in case, or not at all: rename all but one"
        for name, count in folded.items()
        if count > 1
    ]
    if problems:
        raise UnstorableError(f'Model "{asset_key}" cannot be stored: {"; ".join(problems)}.')


def check_partition_keys(keys: Iterable[str], asset_key: str) -> None:
    """Refuse the key that Spark gives to rows without one.

    Raises:
        UnstorableError: names model and key.
    """
    if NULL_KEY in keys:
        raise UnstorableError(
            f'Model "{asset_key}" cannot be stored: the partition key "{NULL_KEY}" is reserved, '
            "as Spark stores rows without a key under it: choose another one."
        )


def _column_problem(field: T.StructField, reserved: Set[str]) -> str | None:
    if field.name.casefold() in reserved:
        return f"the column name {field.name!r} is reserved: rename it"
    parts = list(_parts(field.dataType))
    if any(isinstance(part, T.NullType) for part in parts):
        return f"column {field.name!r} has no type (void): cast it to the intended type"
    if any(isinstance(part, T.CalendarIntervalType) for part in parts):
        return f"column {field.name!r} holds a calendar interval: cast it to a number"
    if any(part.simpleString().startswith("time(") for part in parts):
        return f"column {field.name!r} holds a time, which Spark does not store: cast it to text"
    # Spark writes such keys as JSON by their memory addresses, so no two hashes would be equal.
    if any(isinstance(part, T.MapType) and isinstance(part.keyType, _UNHASHABLE) for part in parts):
        return (
            f"column {field.name!r} holds a map with keys of a nested or binary type: "
            "use map_entries(column)"
        )
    return None


def _parts(type_: T.DataType) -> Iterator[T.DataType]:
    """Yield a type and all types nested in it."""
    yield type_
    match type_:
        case T.StructType():
            inner = [field.dataType for field in type_.fields]
        case T.ArrayType():
            inner = [type_.elementType]
        case T.MapType():
            inner = [type_.keyType, type_.valueType]
        case _:
            inner = []
    for each in inner:
        yield from _parts(each)


# Write the rows of a snapshot, on a disk or to an object store, in one Spark job.


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


def write_snapshot(
    frame: DataFrame,
    store: SnapshotStore,
    *,
    asset_key: str,
    run_id: str,
    origin: Origin | None = None,
    before_commit: Callable[[], None] = lambda: None,
) -> Snapshot:
    """Store all rows of a model as its next version.

    Args:
        origin: what the rows are computed from, if it is known.
        before_commit: called once the rows are stored; if it raises, nothing is kept.

    Raises:
        UnstorableError: raised before anything is written; names model, column and remedy.
    """
    check_storable(frame.schema, asset_key)
    with nothing_left(store, asset_key) as folder:
        written = write_rows(_hashed(frame), store.folder(asset_key), folder, asset_key=asset_key)
        # The number is given at the commit, when it is known which ones other writers have taken.
        files = written.files[None]
        whole = Part(version=0, fingerprint=written.fingerprints[None], files=files)
        before_commit()
        return commit(frame, store, [whole], asset_key=asset_key, run_id=run_id, origin=origin)


def write_partitions(
    frame: DataFrame,
    store: SnapshotStore,
    *,
    expression: str,
    partitions: Mapping[str, Window] | Sequence[str],
    asset_key: str,
    run_id: str,
    keeps: Callable[[Part], bool] = lambda part: True,
    origin: Origin | None = None,
    before_commit: Callable[[], None] = lambda: None,
) -> Snapshot:
    """Store the rows of some partitions of a model; its next version keeps the other partitions.

    A partition without rows is stored too, as an empty one.

    Args:
        keeps: whether a partition of the earlier version still belongs to the model.
        origin: what the rows are computed from, if it is known.
        before_commit: called once the rows are stored; if it raises, nothing is kept.

    Raises:
        UnstorableError: raised before anything is written; names model, column and remedy.
        PartitionError: a row belongs to none of the partitions.
    """
    with nothing_left(store, asset_key) as folder:
        written = stored_parts(
            frame,
            store,
            folder,
            expression=expression,
            partitions=partitions,
            asset_key=asset_key,
        )
        before_commit()
        columns = columns_of(frame)

        def parts(new: Sequence[Part], before: Snapshot | None) -> tuple[Part, ...]:
            return succeeding(before, new, columns=columns, keeps=keeps)

        return commit(
            frame, store, written, asset_key=asset_key, run_id=run_id, origin=origin, parts=parts
        )


def stored_parts(
    frame: DataFrame,
    store: SnapshotStore,
    folder: str,
    *,
    expression: str,
    partitions: Mapping[str, Window] | Sequence[str],
    asset_key: str,
) -> list[Part]:
    """Store rows by partitions for a version to be committed; its number must still be set.

    Args:
        folder: a new folder of the model, from `nothing_left`.

    Raises:
        UnstorableError, PartitionError: as `write_partitions`.
    """
    check_storable(frame.schema, asset_key)
    check_partition_keys(partitions, asset_key)
    placed = with_partition(_hashed(frame), expression, partitions)
    written = write_rows(
        placed, store.folder(asset_key), folder, asset_key=asset_key, partitions=[*partitions]
    )
    if strays := written.strays:
        raise PartitionError(
            f'Model "{asset_key}": {strays:,} row{"s" * (strays > 1)} lie outside the '
            f"partition{'s' * (len(partitions) > 1)} of this run by {expression}, for "
            f"instance {_stray(placed, expression)}. Filter the model by the partition."
        )
    return [
        Part(
            partition=key,
            span=_span(partitions[key]) if isinstance(partitions, Mapping) else None,
            version=0,
            fingerprint=written.fingerprints[key],
            files=written.files[key],
        )
        for key in partitions
    ]


def commit(
    frame: DataFrame,
    store: SnapshotStore,
    written: Sequence[Part],
    *,
    asset_key: str,
    run_id: str,
    origin: Origin | None = None,
    parts: Callable[[Sequence[Part], Snapshot | None], Sequence[Part]] = lambda new, before: new,
) -> Snapshot:
    """Commit the next version of a model.

    Args:
        written: the parts that were just stored; their number and origin are set here.
        parts: all parts of the version, given those and the version before.
    """

    def make(number: int, before: Snapshot | None) -> Snapshot:
        now = {"version": number, "origin": origin}
        new = [part.model_copy(update=now) for part in written]
        return Snapshot(
            folder=store.folder(asset_key),
            asset_key=asset_key,
            number=number,
            created_at=datetime.now(UTC),
            run_id=run_id,
            columns=columns_of(frame),
            comments=_comments(frame),
            parts=tuple(parts(new, before)),
        )

    return store.commit(asset_key, make)


def columns_of(frame: DataFrame) -> tuple[Column, ...]:
    """Return the columns of a model as snapshots name them."""
    return tuple(Column(field.name, field.dataType.simpleString()) for field in frame.schema.fields)


@contextmanager
def nothing_left(store: SnapshotStore, asset_key: str) -> Generator[str]:
    """Yield a new folder for the files of a write; remove it if the write fails."""
    folder = store.new_folder(asset_key)
    try:
        yield folder
    except StoreError:
        # Whether the commit took effect may not be known; if not, retention removes the files.
        raise
    except BaseException:
        # A store that fails now, or a damaged version, must not hide why the write failed.
        with suppress(StoreError, DamagedSnapshotError):
            # The run may be interrupted just after the commit; then the version has the files.
            if not any(file.startswith(folder) for file in store.files(asset_key)):
                store.discard(asset_key, folder)
        raise


def _span(window: Window) -> Span:
    return Span(start=window.start, end=window.end, zone=window.zone)


def _hashed(frame: DataFrame) -> DataFrame:
    """Add the columns for internal use: JSON of nested columns, and the hash of each row."""
    texts = {json_text(name): value for name, value in json_values(frame.schema).items()}
    return frame.withColumns({**texts, ROW_HASH: row_hash(frame.schema)})


def _comments(frame: DataFrame) -> dict[str, str]:
    comments = {field.name: field.metadata.get("comment") for field in frame.schema.fields}
    return {name: comment for name, comment in comments.items() if comment}


def _stray(placed: DataFrame, expression: str) -> object:
    (row,) = placed.where(F.col(PARTITION).isNull()).select(F.expr(expression)).take(1)
    return row[0]
