"""Load Parquet files with Spark; pyarrow first rewrites those that Spark cannot read."""

from itertools import repeat
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.errors import Reading
from tableau_pipeline.ingest.options import Files, check_options, digests
from tableau_pipeline.ingest.values import check_names
from tableau_pipeline.snapshots.write import exact_path

ARROW_ERRORS = (pa.ArrowException, OSError)
# Of Spark, with what comes with it.
_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4")
_GEOSPATIAL = ("geometry", "geography")
_NANOSECONDS = "times finer than microseconds, which neither Spark nor Tableau supports"
_OTHERS = (
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
)


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
    beyond, paths = _checked(files), []
    for number, path in enumerate(files.paths):
        # The copy keeps the file name, which identifies the origin of each row.
        target = folder / str(number) / path.name
        if path in beyond:
            target.parent.mkdir(parents=True, exist_ok=True)
            rewrite(path, target)
        paths.append(exact_path(target if path in beyond else path))
    return Reading(spark.read.options(**files.reader).parquet(*paths), before)


def _checked(files: Files) -> set[Path]:
    """Return the files that Spark cannot read; refuse files with different columns."""
    known: tuple[Path, dict[str, pa.DataType]] | None = None
    beyond = set()
    for path in files.paths:
        try:
            with _opened(path) as file:
                schema = file.schema_arrow
                is_beyond = _is_beyond_spark(file)
                _check_int96(path, file)
        except ARROW_ERRORS as error:
            raise RefusedError(
                f"{path.name} is not a Parquet file, or is damaged: {error}"
            ) from error
        if is_beyond:
            beyond.add(path)
        if not schema.names:
            raise RefusedError(f"{path.name} has no columns")
        check_names(schema.names, path.name)
        types = {each.name: _plain_type(each.type) or each.type for each in schema}
        if known is None:
            known = (path, types)
        elif files.reader.get("mergeSchema", "false").lower() != "true":
            _compare(path, types, *known)
    return beyond


def _compare(
    path: Path, types: dict[str, pa.DataType], first: Path, others: dict[str, pa.DataType]
) -> None:
    for name in [*others, *types]:
        if types.get(name) != others.get(name):
            ours, theirs = (str(each.get(name, "absent")) for each in (types, others))
            raise RefusedError(
                f'column "{name}" is {ours} in {path.name} and {theirs} in {first.name}: publish '
                "such files one by one, or, if columns are only absent, set reader: {mergeSchema: "
                '"true"}'
            )


def rewrite(source: Path, target: Path) -> None:
    """Write the rows of a Parquet file in types and codecs that Spark reads.

    Raises:
        RefusedError: the type or the values of a column would not be preserved; names the
            column.
    """
    with _opened(source) as file:
        _check_geospatial(source, file)
        after = pa.schema([(each.name, _plain_type(each.type)) for each in _storable(source, file)])
        try:
            with pq.ParquetWriter(target, after) as writer:
                for batch in file.iter_batches():
                    arrays = map(_cast, repeat(source), after, batch.columns)
                    writer.write_batch(pa.RecordBatch.from_arrays([*arrays], schema=after))
        except ARROW_ERRORS as error:
            raise RefusedError(
                f"{source.name} cannot be read: {str(error).strip() or type(error).__name__}"
            ) from error


def _opened(path: Path) -> pq.ParquetFile:
    """Open a file so that INT96 timestamps are read in microseconds, as Spark does."""
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def _is_beyond_spark(file: pq.ParquetFile) -> bool:
    """Whether Spark lacks a type, a codec or an encoding of the file."""
    chunks = [
        file.metadata.row_group(group).column(column)
        for group in range(file.metadata.num_row_groups)
        for column in range(file.metadata.num_columns)
    ]
    return any(
        pa.types.is_float16(each.type)
        or (pa.types.is_timestamp(each.type) and each.type.unit == "ns")
        or _plain_type(each.type) is None
        for each in file.schema_arrow
    ) or any(
        each.compression not in _CODECS or "BYTE_STREAM_SPLIT" in each.encodings for each in chunks
    )


def _plain_type(type_: pa.DataType) -> pa.DataType | None:
    """Return the Spark-compatible type for the values of a type; None if there is none."""
    match type_:
        case pa.DictionaryType():
            return _plain_type(type_.value_type)
        case pa.BaseExtensionType():
            return _plain_type(type_.storage_type)
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType():
            inner = _plain_type(type_.value_type)
            return inner and pa.list_(inner)
        case pa.StructType():
            fields = [(each.name, _plain_type(each.type)) for each in type_]
            return pa.struct(fields) if all(inner for _, inner in fields) else None
        case pa.MapType():
            key, item = _plain_type(type_.key_type), _plain_type(type_.item_type)
            return pa.map_(key, item) if key and item else None
        case pa.TimestampType():
            # The cast to it refuses a value with nanoseconds, and does not cut them off.
            return pa.timestamp("us", type_.tz)
    return _plain_scalar(type_)


def _plain_scalar(type_: pa.DataType) -> pa.DataType | None:
    if pa.types.is_decimal(type_):
        return pa.decimal128(type_.precision, type_.scale) if type_.precision <= 38 else None
    if pa.types.is_time(type_) or pa.types.is_duration(type_) or pa.types.is_interval(type_):
        return None
    return next((now for is_one, now in _OTHERS if is_one(type_)), type_)


def _check_int96(path: Path, file: pq.ParquetFile) -> None:
    """Check that INT96 timestamps have whole microseconds: Spark would truncate finer ones."""
    columns = map(file.schema.column, range(len(file.schema)))
    for name in (each.path for each in columns if each.physical_type == "INT96"):
        with pq.ParquetFile(path) as fine:
            for exact, cut in zip(
                fine.iter_batches(columns=[name]), file.iter_batches(columns=[name]), strict=True
            ):
                nanoseconds, microseconds = (
                    _whole_numbers(each.column(0)) for each in (exact, cut)
                )
                # Both overflow alike outside of the years that nanoseconds reach.
                same = pc.call_function("multiply", [microseconds, 1000])
                if not nanoseconds.equals(same):
                    raise RefusedError(
                        f'{path.name}: column "{name}" has {_NANOSECONDS}: round them'
                    )


def _whole_numbers(array: pa.Array) -> pa.Array:
    while not pa.types.is_timestamp(array.type):
        array = array.field(0) if pa.types.is_struct(array.type) else array.flatten()
    return array.cast(pa.int64())


def _check_geospatial(path: Path, file: pq.ParquetFile) -> None:
    for number in range(len(file.schema)):
        column = file.schema.column(number)
        # Arrow shows such a column as plain bytes; only Parquet's own schema tells.
        kind = str(column.logical_type).lower().split("(")[0]
        if kind in _GEOSPATIAL:
            raise RefusedError(
                f'{path.name}: column "{column.path}" holds geospatial values of the type {kind}, '
                "which an extract made here cannot have: write them as text (WKT), or as columns "
                "of longitude and latitude"
            )


def _storable(path: Path, file: pq.ParquetFile) -> pa.Schema:
    for each in file.schema_arrow:
        if _plain_type(each.type) is None:
            raise RefusedError(
                f'{path.name}: column "{each.name}" is of the type {each.type}, which Spark cannot '
                "store: write it as text or as a number"
            )
    return file.schema_arrow


def _cast(path: Path, field: pa.Field, column: pa.Array) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        why = _NANOSECONDS
        if "timestamp" not in str(column.type):
            why = f"values that do not fit {field.type}"
        raise RefusedError(f'{path.name}: column "{field.name}" has {why}: {error}') from error
