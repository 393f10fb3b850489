"""Rewrite Parquet files that Spark cannot read with pyarrow, without changing a value."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tableau_pipeline.errors import RefusedError

ARROW_ERRORS = (pa.ArrowException, OSError)
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


def rewrite(source: Path, target: Path) -> None:
    """Write the rows of a Parquet file in types and codecs that Spark reads.

    Raises:
        RefusedError: the type or the values of a column would not be preserved; names the
            column.
    """
    with opened(source) as file:
        _check_geospatial(source, file)
        before = file.schema_arrow
        after = pa.schema([(each.name, _plain(source, each)) for each in before])
        with pq.ParquetWriter(target, after) as writer:
            for batch in _batches(source, file):
                arrays = [
                    _cast(source, name, column, type_)
                    for name, column, type_ in zip(
                        after.names, batch.columns, after.types, strict=True
                    )
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=after))


def opened(path: Path) -> pq.ParquetFile:
    """Open a file so that INT96 timestamps are read in microseconds, as Spark does."""
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def is_beyond_spark(schema: pa.Schema) -> bool:
    """Whether one of the types is known to be unsupported by Spark."""
    return any(
        pa.types.is_float16(each.type)
        or (pa.types.is_timestamp(each.type) and each.type.unit == "ns")
        or plain(each.type) is None
        for each in schema
    )


def plain(type_: pa.DataType) -> pa.DataType | None:
    """Return the Spark-compatible type for the values of a type; None if there is none."""
    match type_:
        case pa.DictionaryType():
            return plain(type_.value_type)
        case pa.BaseExtensionType():
            return plain(type_.storage_type)
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType():
            inner = plain(type_.value_type)
            return inner and pa.list_(inner)
        case pa.StructType():
            fields = [(each.name, plain(each.type)) for each in type_]
            return pa.struct(fields) if all(inner for _, inner in fields) else None
        case pa.MapType():
            key, item = plain(type_.key_type), plain(type_.item_type)
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


def check_int96(path: Path) -> None:
    """Check that INT96 timestamps have whole microseconds: Spark would truncate finer ones.

    Raises:
        RefusedError: they are finer; the message names the column.
    """
    try:
        with pq.ParquetFile(path) as file:
            columns = [
                each.path
                for number in range(len(file.schema))
                if (each := file.schema.column(number)).physical_type == "INT96"
            ]
        for name in columns:
            if not _has_microseconds(path, name):
                raise RefusedError(f'{path.name}: column "{name}" has {_NANOSECONDS}: round them')
    except ARROW_ERRORS:
        # The error is reported when the rows are read.
        return


def _has_microseconds(path: Path, column: str) -> bool:
    with pq.ParquetFile(path) as fine, pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as us:
        for exact, cut in zip(
            fine.iter_batches(columns=[column]), us.iter_batches(columns=[column]), strict=True
        ):
            one, other = (_leaf(each.column(0)) for each in (exact, cut))
            nanoseconds, microseconds = (each.cast(pa.int64()) for each in (one, other))
            rest = pc.call_function(
                "subtract", [nanoseconds, pc.call_function("multiply", [microseconds, 1000])]
            )
            if pc.call_function("any", [pc.call_function("not_equal", [rest, 0])]).as_py():
                return False
    return True


def _leaf(array: pa.Array) -> pa.Array:
    while not pa.types.is_timestamp(array.type):
        array = array.field(0) if pa.types.is_struct(array.type) else array.flatten()
    return array


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


def _plain(path: Path, field: pa.Field) -> pa.DataType:
    type_ = plain(field.type)
    if type_ is None:
        raise RefusedError(
            f'{path.name}: column "{field.name}" is of the type {field.type}, which Spark cannot '
            "store: write it as text or as a number"
        )
    return type_


def _batches(path: Path, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    try:
        yield from file.iter_batches()
    except ARROW_ERRORS as error:
        names = file.schema_arrow.names
        raise RefusedError(
            f"{path.name}: {_named(path, names)}cannot be read: {_words(error)}"
        ) from error


def _named(path: Path, names: list[str]) -> str:
    """Return the columns that cannot be read, unless that is all of them."""
    wrong = []
    for name in names:
        try:
            # Without this pyarrow would add a column for each folder of the path that is named a=b.
            pq.read_table(path, columns=[name], partitioning=None)
        except ARROW_ERRORS:
            wrong.append(f'"{name}"')
    return f"column {', '.join(wrong)} " if wrong else ""


def _cast(path: Path, name: str, column: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return column.cast(type_)
    except pa.ArrowException as error:
        why = _NANOSECONDS if "timestamp" in str(column.type) else f"values that do not fit {type_}"
        raise RefusedError(f'{path.name}: column "{name}" has {why}: {_words(error)}') from error


def _words(error: Exception) -> str:
    return str(error).strip() or type(error).__name__
