"""Load Parquet files with Spark; pyarrow first rewrites those that Spark cannot read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.errors import Reading
from tableau_pipeline.ingest.options import Files, check_options, digests
from tableau_pipeline.ingest.values import check_names
from tableau_pipeline.snapshots.write import exact_path

# Of Spark, with what comes with it.
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4")
_NANOSECONDS = "times finer than microseconds, which neither Spark nor Tableau supports"
_PLAIN = {
    pa.float16(): pa.float32(),
    **dict.fromkeys((pa.large_string(), pa.string_view()), pa.string()),
    **dict.fromkeys((pa.large_binary(), pa.binary_view()), pa.binary()),
}


def load_parquet(spark: SparkSession, files: Files, folder: Path) -> Reading:
    """Load the rows of files. pyarrow rewrites a file that Spark cannot read, if no value changes.

    Args:
        folder: for the rewritten files; it must exist as long as the frame is used.

    Raises:
        RefusedError: the files differ in their columns, or a column has a type or values that
            cannot be preserved. The message names file and column.
    """
    check_options(files.reader, "parquet")
    before = digests(files.paths)
    schemas, paths = [], []
    for number, path in enumerate(files.paths):
        # The copy keeps the file name, which identifies the origin of each row.
        target = folder / str(number) / path.name
        try:
            with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
                schemas.append(_plain_schema(path, file))
                is_beyond = _is_beyond_spark(file)
                if is_beyond:
                    _rewrite(path, file, schemas[-1], target)
        except (pa.ArrowException, OSError) as error:
            raise RefusedError(
                f"{path.name} is not a Parquet file, or is damaged: {error}"
            ) from error
        if files.reader.get("mergeSchema", "false").lower() != "true":
            _compare(path, schemas[-1], files.paths[0], schemas[0])
        paths.append(exact_path(target if is_beyond else path))
    return Reading(spark.read.options(**files.reader).parquet(*paths), before)


def _compare(path: Path, schema: pa.Schema, first: Path, other: pa.Schema) -> None:
    types, others = ({each.name: str(each.type) for each in one} for one in (schema, other))
    for name in [*others, *types]:
        ours, theirs = types.get(name, "absent"), others.get(name, "absent")
        if ours != theirs:
            raise RefusedError(
                f'column "{name}" is {ours} in {path.name} and {theirs} in {first.name}: publish '
                "such files one by one, or, if columns are only absent, set reader: {mergeSchema: "
                '"true"}'
            )


def _plain_schema(path: Path, file: pq.ParquetFile) -> pa.Schema:
    """Return the columns in the types that Spark has for them; refuse others."""
    schema = file.schema_arrow
    if not schema.names:
        raise RefusedError(f"{path.name} has no columns")
    check_names(schema.names, path.name)
    for number in range(len(file.schema)):
        column = file.schema.column(number)
        # Arrow shows such a column as plain bytes; only Parquet's own schema tells.
        kind = str(column.logical_type).lower().split("(")[0]
        if kind in ("geometry", "geography"):
            raise RefusedError(
                f'{path.name}: column "{column.path}" holds geospatial values of the type {kind}, '
                "which an extract made here cannot have: write them as text (WKT), or as columns "
                "of longitude and latitude"
            )
    return pa.schema([(each.name, _plain_type(path, each.name, each.type)) for each in schema])


def _plain_type(path: Path, name: str, type_: pa.DataType) -> pa.DataType:
    if isinstance(type_, pa.DictionaryType):
        type_ = type_.value_type
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    of_time = pa.types.is_time(type_) or pa.types.is_duration(type_) or pa.types.is_interval(type_)
    if of_time or (pa.types.is_decimal(type_) and type_.precision > 38):
        raise RefusedError(
            f'{path.name}: column "{name}" is of the type {type_}, which Spark cannot store: write '
            "it as text or as a number"
        )
    # The cast to it refuses a value with nanoseconds, and does not cut them off.
    return (
        pa.timestamp("us", type_.tz) if pa.types.is_timestamp(type_) else _PLAIN.get(type_, type_)
    )


def _is_beyond_spark(file: pq.ParquetFile) -> bool:
    """Whether Spark lacks a type, a codec or an encoding of the file."""
    groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    return any(
        pa.types.is_float16(each) or (pa.types.is_timestamp(each) and each.unit == "ns")
        for each in file.schema_arrow.types
    ) or any(
        each.compression not in _CODECS or "BYTE_STREAM_SPLIT" in each.encodings for each in chunks
    )


def _rewrite(source: Path, file: pq.ParquetFile, schema: pa.Schema, target: Path) -> None:
    """Write the rows of a Parquet file in types and codecs that Spark reads, or refuse them."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(target, schema) as writer:
        for batch in file.iter_batches():
            arrays = [_cast(source, *each) for each in zip(schema, batch.columns, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _cast(path: Path, field: pa.Field, column: pa.Array) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        is_time = pa.types.is_timestamp(field.type)
        why = _NANOSECONDS if is_time else f"values that do not fit {field.type}"
        raise RefusedError(f'{path.name}: column "{field.name}" has {why}: {error}') from error
