"""Write versions of models; one Spark job stores the rows with their hashes."""

import re
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from datetime import UTC, date, datetime, time, timedelta
from math import gcd
from operator import attrgetter
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Part, Snapshot, Span
from tableau_pipeline.hyper.parquet import Folder, LocalFolder
from tableau_pipeline.hyper.types import ROW_HASH, Column, json_text, name_problems
from tableau_pipeline.objects.arrow_files import REPORT, Writer
from tableau_pipeline.objects.stores import ObjectFolder
from tableau_pipeline.snapshots.spark import plainly_named, runs_here, ship_by_value, task_errors
from tableau_pipeline.snapshots.spark_internals import ESCAPED, NULL_KEY
from tableau_pipeline.snapshots.version_store import (
    PARTITION,
    SnapshotStore,
    commit_parts,
    merged_parts,
    new_write,
    reserved_names,
)

# Escape these characters in paths, because Spark reads paths as glob patterns.
_GLOB = re.compile(r"[\\{}\[\]*?]")


def spark_path(path: Path) -> str:
    """Return a path as a URL for Spark, without escapes."""
    return f"file://{path}"


def exact_path(path: Path) -> str:
    """Return a path as a URL for Spark, with escapes so that Spark reads exactly this path."""
    return _GLOB.sub(r"\\\g<0>", spark_path(path))


# The row hash is a 64-bit number that identifies the content of a row. Spark computes it.

# For reading the hashes back: how many rows a batch has, and how many bytes the buffer has. Without
# a buffer, pyarrow would read the hashes of a whole row group at once.
_BATCH, _BUFFER = 65_536, 1 << 20
_NESTED = (T.ArrayType, T.MapType, T.StructType, T.VariantType)
# By default, Spark's JSON would omit nulls, and the digits of a time below milliseconds.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def row_hash(schema: T.StructType) -> SparkColumn:
    """Return the hash of a row with this schema.

    Spark's hash functions skip NULLs, so that (1, NULL) and (NULL, 1) would have the same hash.
    Therefore, the row hash also includes, for each column, whether the value is NULL. Spark's hash
    functions ignore where an array begins and ends, and refuse maps and variants. Therefore, the
    row hash uses the JSON text of nested values.
    """
    # Pass names, and use F.isnull, because each F.col and each method of a column would make a
    # dozen calls to the JVM.
    nulls = [F.isnull(_quoted(field.name)) for field in schema.fields]
    return F.xxhash64(*[_hash_input(field) for field in schema.fields], *nulls)


def stored_fingerprint(files: Iterable[Path]) -> Fingerprint:
    """Return the fingerprint of all rows of Parquet files, in constant memory."""
    rows = total = 0
    for file in files:
        with pq.ParquetFile(file, buffer_size=_BUFFER) as opened:
            for batch in opened.iter_batches(_BATCH, columns=[ROW_HASH], use_threads=False):
                rows += batch.num_rows
                # Cast the hashes, because their sum does not fit into 64 bits.
                hashes = batch.column(0).cast(pa.decimal128(38, 0))
                total += int(pc.call_function("sum", [hashes]).as_py() or 0)
    return Fingerprint(rows=rows, hash_sum=total)


def json_values(schema: T.StructType) -> dict[str, SparkColumn]:
    """Return the JSON text of each nested column. Different values have different texts."""
    nested = (field.name for field in schema.fields if isinstance(field.dataType, _NESTED))
    return {name: _json(name) for name in nested}


def column(name: str) -> SparkColumn:
    """Return a column by its name; the name may contain dots and backticks."""
    return F.col(_quoted(name))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _hash_input(field: T.StructField) -> SparkColumn | str:
    if isinstance(field.dataType, _NESTED):
        return _json(field.name)
    if isinstance(field.dataType, T.StringType) and field.dataType != T.StringType():
        # Drop the collation, because texts that are equal by a collation may be different values.
        return column(field.name).cast(T.StringType())
    return _quoted(field.name)


def _json(name: str) -> SparkColumn:
    return F.to_json(column(name), _JSON)


class PartitionError(Exception):
    """The rows do not fit the partitions."""


class UnstorableError(Exception):
    """A model has a column that a snapshot cannot store."""


def _add_partition(
    frame: DataFrame, expression: str, partitions: Mapping[str, Span] | Sequence[str]
) -> DataFrame:
    """Add a column `_partition` with the key of each row's partition; NULL for all other rows.

    Args:
        expression: an SQL expression with columns of the frame. If it returns a date or a
            `timestamp_ntz`, the value is a local time in the zone of the partitions. If it returns
            a `timestamp`, the value is an instant.
        partitions: maps each key to its time span; or only the keys, if the expression returns the
            keys themselves.
    """
    value = F.expr(expression)
    if not isinstance(partitions, Mapping):
        text = value.cast("string")
        # Set the keys of other partitions to NULL, so that the write detects their rows.
        return frame.withColumn(PARTITION, F.when(text.isin(list(partitions)), text))
    type_ = frame.select(value).schema.fields[0].dataType
    zone = next(iter(partitions.values())).zone
    edges = {
        key: [edge.astimezone(ZoneInfo(zone)) for edge in (span.start, span.end)]
        for key, span in partitions.items()
    }
    by_day = all(_begins_a_day(edge) for pair in edges.values() for edge in pair)
    # Convert from UTC and to UTC, because the session is in UTC.
    if isinstance(type_, T.TimestampType):
        moment = F.from_utc_timestamp(value, zone) if by_day else value
    elif isinstance(type_, T.TimestampNTZType):
        moment = value if by_day else F.to_utc_timestamp(value.cast("timestamp"), zone)
    elif by_day and isinstance(type_, T.DateType):
        moment = value
    else:
        required = "a date or a timestamp" if by_day else "a timestamp, not a date"
        raise PartitionError(f"{expression} is {type_.simpleString()}, but has to be {required}")
    # Join on equal values, because comparing every row with every span would be slow.
    if by_day:
        type_, steps, moment = "DATE", _days_of_partitions(edges), moment.cast("date")
    else:
        seconds = {key: [int(edge.timestamp()) for edge in pair] for key, pair in edges.items()}
        start, length = longest_step(seconds.values())
        type_, steps = "BIGINT", _steps_of_partitions(seconds, length)
        at = F.unix_seconds(moment)
        moment = at - F.pmod(at - F.lit(start), F.lit(length))
    lookup = frame.sparkSession.createDataFrame(steps, f"__moment {type_}, {PARTITION} STRING")
    placed = frame.withColumn("__moment", moment)
    return placed.join(F.broadcast(lookup), "__moment", "left").drop("__moment")


def _begins_a_day(moment: datetime) -> bool:
    # Compare instants: if clocks go forward at midnight, the day begins at 1:00.
    midnight = datetime.combine(moment.date(), time(), moment.tzinfo)
    return midnight.astimezone(UTC) == moment.astimezone(UTC)


def _days_of_partitions(edges: Mapping[str, Sequence[datetime]]) -> list[tuple[date, str]]:
    return [
        (start.date() + timedelta(days=number), key)
        for key, (start, end) in edges.items()
        for number in range((end.date() - start.date()).days)
    ]


def longest_step(spans: Iterable[Sequence[int]]) -> tuple[int, int]:
    """Return the start of the first span, and the longest step that divides all spans (in seconds).

    With this step, a table that maps times to hourly partitions needs only one row for each hour.
    """
    edges = [edge for span in spans for edge in span]
    return edges[0], gcd(*(edge - edges[0] for edge in edges))


def _steps_of_partitions(spans: Mapping[str, Sequence[int]], length: int) -> list[tuple[int, str]]:
    return [(at, key) for key, span in spans.items() for at in range(*span, length)]


_UNHASHABLE = (T.ArrayType, T.BinaryType, T.StructType)


def _check_storable(schema: T.StructType, asset_key: str, partitions: Collection[str] = ()) -> None:
    """Refuse types that Parquet cannot store, and names that are empty, reserved or repeated.

    Raises:
        UnstorableError: a column is refused. The error names the model, the columns and the
            remedies.
    """
    reserved = reserved_names(schema.names)
    problems = [problem for field in schema.fields if (problem := _column_problem(field, reserved))]
    problems += name_problems(schema.names)
    if not schema.fields:
        problems.append("it has no columns")
    if NULL_KEY in partitions:
        problems.append(
            f'the partition key "{NULL_KEY}" is reserved, as Spark stores rows without a key under '
            "it: choose another one"
        )
    if problems:
        raise UnstorableError(f'Model "{asset_key}" cannot be stored: {"; ".join(problems)}.')


def _column_problem(field: T.StructField, reserved: Set[str]) -> str | None:
    if field.name.casefold() in reserved:
        return f"the column name {field.name!r} is reserved: rename it"
    parts = list(_nested_types(field.dataType))
    if any(isinstance(part, T.NullType) for part in parts):
        return f"column {field.name!r} has no type (void): cast it to the intended type"
    if any(isinstance(part, T.CalendarIntervalType) for part in parts):
        return f"column {field.name!r} holds a calendar interval: cast it to a number"
    if any(part.simpleString().startswith("time(") for part in parts):
        return f"column {field.name!r} holds a time, which Spark does not store: cast it to text"
    # Refuse these keys: in JSON, Spark writes them as memory addresses. So equal rows would have
    # different hashes.
    if any(isinstance(part, T.MapType) and isinstance(part.keyType, _UNHASHABLE) for part in parts):
        return (
            f"column {field.name!r} holds a map with keys of a nested or binary type: "
            "use map_entries(column)"
        )
    return None


def _nested_types(type_: T.DataType) -> Iterator[T.DataType]:
    """Yield a type, and all types that are nested in it."""
    yield type_
    match type_:
        case T.StructType():
            for field in type_.fields:
                yield from _nested_types(field.dataType)
        case T.ArrayType():
            yield from _nested_types(type_.elementType)
        case T.MapType():
            yield from _nested_types(type_.keyType)
            yield from _nested_types(type_.valueType)


def write_rows(
    hashed: DataFrame,
    model: Folder,
    folder: str,
    *,
    asset_key: str,
    keys: Sequence[str | None] = (None,),
) -> tuple[list[Part], int]:
    """Write rows, with a column of their hashes, by one Spark job.

    Args:
        model: the folder of the model.
        folder: the name of a new folder in `model`, for the files of this write.
        keys: the keys of the partitions, if the column `_partition` has the key of each row;
            (None,) for rows without partitions.

    Returns:
        one part for each key, and the number of rows without a partition. The caller must set the
        version number of the parts.
    """
    if isinstance(model, ObjectFolder):
        return _write_objects(hashed, model, folder, asset_key=asset_key, keys=keys)
    if not isinstance(model, LocalFolder):
        raise TypeError(f"The pipeline does not write to {model}")
    target = model.path / folder
    # Let Spark count the rows, to notice files that this process does not see. If Spark runs on
    # this host, skip the count: no file can be on another disk, and for a small model, counting
    # takes as long as summing the hashes.
    observation = None if runs_here(hashed.sparkSession) else Observation()
    rows = hashed.observe(observation, F.count(F.lit(1)).alias("rows")) if observation else hashed
    writer = rows.write if None in keys else rows.write.partitionBy(PARTITION)
    writer.parquet(spark_path(target))
    parts = []
    for key in keys:
        # The name that Spark gives to the folder of the partition.
        name = "".join(f"%{ord(c):02X}" if c in ESCAPED or ord(c) < 32 else c for c in key or "")
        files = _data_files(target if key is None else target / f"{PARTITION}={name}", model.path)
        fingerprint = stored_fingerprint(model.path / file.name for file in files)
        parts.append(Part(partition=key, version=0, fingerprint=fingerprint, files=files))
    strays = sum(file.rows for file in _data_files(target / f"{PARTITION}={NULL_KEY}", model.path))
    stored = sum(file.rows for part in parts for file in part.files) + strays
    # If Spark's count differs from the number of rows in the files, this process does not see all
    # files.
    if observation and stored != observation.get["rows"]:
        raise RuntimeError(
            f'Model "{asset_key}": Spark counted {observation.get["rows"]:,} rows, but the '
            f"files in {target} hold {stored:,}. Does every executor see that path?"
        )
    return parts, strays


def _data_files(folder: Path, model: Path) -> tuple[DataFile, ...]:
    return tuple(
        DataFile(
            name=path.relative_to(model).as_posix(),
            rows=pq.read_metadata(path).num_rows,
            size=path.stat().st_size,
        )
        for path in sorted(folder.glob("part-*.parquet"))
    )


def _write_objects(
    hashed: DataFrame,
    model: ObjectFolder,
    folder: str,
    *,
    asset_key: str,
    keys: Sequence[str | None],
) -> tuple[list[Part], int]:
    by_partition = None not in keys
    # Sort the rows by partition, so that a task writes one file after the other.
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
    # Only the successful attempt of a task reports its files. The version does not name files of
    # other attempts, so these files are never read.
    with task_errors():
        reports = plainly_named(placed).mapInArrow(ship_by_value(writer), REPORT).collect()
    strays = sum(report.rows for report in reports if not report.name)
    files: dict[str | None, list[DataFile]] = {key: [] for key in keys}
    sums: dict[str | None, Fingerprint] = {key: Fingerprint(rows=0, hash_sum=0) for key in keys}
    for report in reports:
        if report.name:
            name = f"{folder}/{report.name}"
            files[report.partition].append(DataFile(name=name, rows=report.rows, size=report.size))
            sums[report.partition] += Fingerprint(rows=report.rows, hash_sum=int(report.hash_sum))
    if not reports:
        # If there are no rows, write an empty file, which stores the types of the columns. Types as
        # text would not be enough, because they do not quote the names of nested fields.
        with task_errors():
            name, size = writer.empty(keys[0], plainly_named(hashed.limit(0)).toArrow().schema)
        files[keys[0]].append(DataFile(name=f"{folder}/{name}", rows=0, size=size))
    if missing := model.missing([file.name for group in files.values() for file in group]):
        raise RuntimeError(
            f'Model "{asset_key}": Spark wrote {missing[0]}, but this process does not find '
            "that object. Give the executors the same endpoint and credentials as this process."
        )
    parts = []
    for key in keys:
        named = tuple(sorted(files[key], key=attrgetter("name")))
        parts.append(Part(partition=key, version=0, fingerprint=sums[key], files=named))
    return parts, strays


def write_snapshot(
    frame: DataFrame,
    store: SnapshotStore,
    *,
    asset_key: str,
    run_id: str,
    before_commit: Callable[[], None] = lambda: None,
) -> Snapshot:
    """Store all rows of a model as its next version.

    Args:
        before_commit: a function to call once the rows are stored. If it fails, no version is made.

    Raises:
        UnstorableError: a column cannot be stored. The error names the model, the column and the
            remedy. Nothing was written.
    """
    _check_storable(frame.schema, asset_key)
    with new_write(store, asset_key) as folder:
        model = store.folder(asset_key)
        written, _ = write_rows(_hashed(frame), model, folder, asset_key=asset_key)
        before_commit()
        return _commit(
            frame, store, written, asset_key=asset_key, run_id=run_id, parts=lambda new, _: new
        )


def write_partitions(
    frame: DataFrame,
    store: SnapshotStore,
    *,
    expression: str,
    partitions: Mapping[str, Span] | Sequence[str],
    asset_key: str,
    run_id: str,
    keeps: Callable[[Part], bool] = lambda part: True,
    parts: Callable[[Sequence[Part], Snapshot | None], Sequence[Part]] | None = None,
    before_commit: Callable[[], None] = lambda: None,
) -> Snapshot:
    """Store the rows of some partitions of a model; its next version keeps the other partitions.

    If the frame has no rows for a partition, an empty partition is stored.

    Args:
        keeps: a function that returns whether an earlier partition still belongs to the model.
        parts: a function that returns all parts of the new version, by default `merged_parts`. Its
            arguments are the newly stored parts and the version before.
        before_commit: a function to call once the rows are stored. If it fails, no version is made.

    Raises:
        UnstorableError: a column cannot be stored. The error names the model, the column and the
            remedy. Nothing was written.
        PartitionError: a row belongs to none of the partitions.
    """
    _check_storable(frame.schema, asset_key, partitions)

    def merged(new: Sequence[Part], before: Snapshot | None) -> Sequence[Part]:
        return merged_parts(before, new, columns=columns_of(frame), keeps=keeps)

    placed, model = _add_partition(_hashed(frame), expression, partitions), store.folder(asset_key)
    with new_write(store, asset_key) as folder:
        written, strays = write_rows(placed, model, folder, asset_key=asset_key, keys=[*partitions])
        if strays:
            ((stray,),) = placed.where(F.col(PARTITION).isNull()).select(F.expr(expression)).take(1)
            rows = "1 row lies" if strays == 1 else f"{strays:,} rows lie"
            raise PartitionError(
                f'Model "{asset_key}": {rows} outside '
                f"the partition{'s' * (len(partitions) > 1)} of this run by {expression}, for "
                f"instance {stray}. Filter the model by the partition."
            )
        if isinstance(partitions, Mapping):
            spans = zip(written, partitions.values(), strict=True)
            written = [part.model_copy(update={"span": span}) for part, span in spans]
        before_commit()
        return _commit(
            frame, store, written, asset_key=asset_key, run_id=run_id, parts=parts or merged
        )


def _commit(
    frame: DataFrame,
    store: SnapshotStore,
    written: Sequence[Part],
    *,
    asset_key: str,
    run_id: str,
    parts: Callable[[Sequence[Part], Snapshot | None], Sequence[Part]],
) -> Snapshot:
    """Commit the next version of a model with the columns and comments of a frame."""
    comments = {
        field.name: comment
        for field in frame.schema.fields
        if (comment := field.metadata.get("comment"))
    }
    return commit_parts(
        store,
        asset_key,
        written,
        columns=columns_of(frame),
        comments=comments,
        run_id=run_id,
        parts=parts,
    )


def columns_of(frame: DataFrame) -> tuple[Column, ...]:
    """Return the columns of a frame with their types, in the form that a snapshot stores."""
    return tuple(Column(field.name, field.dataType.simpleString()) for field in frame.schema.fields)


def _hashed(frame: DataFrame) -> DataFrame:
    """Add the columns for internal use: the JSON text of each nested column, and the row hash."""
    texts = {json_text(name): value for name, value in json_values(frame.schema).items()}
    return frame.withColumns({**texts, ROW_HASH: row_hash(frame.schema)})
