"""Open Parquet files of any writer; give each column a type that Spark has, or refuse it."""

import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.errors import FilesError, RefusedError
from tableau_pipeline.ingest.columns import check_names
from tableau_pipeline.ingest.options import is_skipped

# The codecs that Spark can read without further libraries.
_SPARK_CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD", "LZ4")
_PLAIN_TYPES = {
    pa.float16(): pa.float32(),
    # Spark has no unsigned integers, and reads them with these types.
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.date64(): pa.date32(),
    # Spark reads a column as integers if the column never had a value.
    pa.null(): pa.int32(),
    **dict.fromkeys((pa.large_string(), pa.string_view()), pa.string()),
    **dict.fromkeys((pa.large_binary(), pa.binary_view()), pa.binary()),
}
_LIST_TYPES = (
    pa.ListType,
    pa.LargeListType,
    pa.FixedSizeListType,
    pa.ListViewType,
    pa.LargeListViewType,
)
_MOST_DIGITS = 38


def copy_if_unreadable(path: Path, target: Path) -> tuple[pa.Schema, bool]:
    """Copy a Parquet file if Spark cannot read it; return its columns, and whether it was copied.

    Args:
        target: the path for the copy.

    Raises:
        RefusedError: the file is damaged, or a value in it would change.
    """
    with _opened(path) as columns:
        if columns.is_beyond_spark:
            _rewrite(path, columns.file, columns.schema, target)
            return columns.schema, True
    if is_named_by_us := is_skipped(path.name) or ":" in path.name:
        target.parent.mkdir(parents=True)
        shutil.copyfile(path, target)
    return columns.schema, is_named_by_us


@contextmanager
def opened(path: Path) -> Generator[tuple[pq.ParquetFile, pa.Schema]]:
    """Open a Parquet file; yield the file, and its columns in types that Spark has.

    Raises:
        RefusedError: the file is damaged, or a column cannot be stored.
    """
    with _opened(path) as columns:
        yield columns.file, columns.schema


@contextmanager
def _opened(path: Path) -> Generator["_Columns"]:
    try:
        with pq.ParquetFile(
            path, coerce_int96_timestamp_unit="us", arrow_extensions_enabled=False
        ) as file:
            yield _Columns(path, file)
    except pa.ArrowNotImplementedError as error:
        raise FilesError(
            f"{path.name} has a type or codec that is not read here ({error}). Write such columns "
            "as decimals or as text, and the file with a usual codec, such as zstd",
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise FilesError(f"{path.name} is not a Parquet file, or is damaged: {error}") from error


class _Columns:
    """The columns of a file.

    Attributes:
        schema: the columns in types that Spark has.
        is_beyond_spark: whether Spark lacks a type, a codec or an encoding of the file.

    Raises:
        RefusedError: the file has no columns, or a column cannot be stored.
    """

    def __init__(self, path: Path, file: pq.ParquetFile) -> None:
        schema = file.schema_arrow
        if not schema.names:
            raise FilesError(f"{path.name} has no columns")
        check_names(schema.names, path.name)
        self._path, self.file = path, file
        self.is_beyond_spark = any(
            chunk.compression not in _SPARK_CODECS or "BYTE_STREAM_SPLIT" in chunk.encodings
            for chunk in _chunks(file)
        )
        # Keep Parquet's types of the leaves, because Arrow's types lack some details. Parquet and
        # Arrow list leaves in the same order.
        self._leaves = map(file.schema.column, range(len(file.schema)))
        plain = [self._plain(type_) for type_ in schema.types]
        self.schema = pa.schema([*zip(schema.names, plain, strict=True)])

    def _plain(self, type_: pa.DataType) -> pa.DataType:
        """Return a type that Spark has and that can hold all values of the given type."""
        if isinstance(type_, pa.BaseExtensionType):
            return self._plain(type_.storage_type)
        if isinstance(type_, pa.DictionaryType):
            return self._plain(type_.value_type)
        if isinstance(type_, pa.StructType):
            fields = [field.with_type(self._plain(field.type)) for field in type_]
            # Allow NULL in every field, as Spark does, so that files do not differ in this.
            return pa.struct([field.with_nullable(True) for field in fields])
        if isinstance(type_, pa.MapType):
            key = self._plain(type_.key_type)
            return pa.map_(key, self._plain(type_.item_type))
        if isinstance(type_, _LIST_TYPES):
            return pa.list_(self._plain(type_.value_type))
        return self._plain_leaf(type_, next(self._leaves))

    def _plain_leaf(self, type_: pa.DataType, leaf: pq.ColumnSchema) -> pa.DataType:
        kind = str(leaf.logical_type).lower().partition("(")[0]
        if kind == "null" and leaf.physical_type == "FIXED_LEN_BYTE_ARRAY":
            # This is an interval: Java writes only the older name of the type, which Arrow does not
            # know.
            kind = "interval"
        if kind in ("geometry", "geography"):
            raise self._refusal(
                leaf,
                f"holds geospatial values of the type {kind}, which an extract made here cannot "
                "have: write them as text (WKT), or as columns of longitude and latitude",
            )
        time_checks = (pa.types.is_time, pa.types.is_duration, pa.types.is_interval)
        if kind == "interval" or any(is_such(type_) for is_such in time_checks):
            name = kind if kind == "interval" else type_
            raise self._refusal(
                leaf,
                f"is of the type {name}, which Spark cannot store: write it as text or as a number",
            )
        if kind in ("uuid", "enum"):
            # The bytes of an enum are text. Spark reads enums as text, but Arrow reads them as
            # bytes.
            self.is_beyond_spark |= kind == "uuid"
            return pa.string()
        if pa.types.is_decimal(type_):
            if type_.precision > _MOST_DIGITS:
                raise self._refusal(
                    leaf,
                    f"is of the type {type_}, and Spark and Tableau have at most {_MOST_DIGITS} "
                    "digits: write it as text",
                )
            # Spark cannot read short decimals if they are stored as byte arrays.
            self.is_beyond_spark |= leaf.physical_type == "BYTE_ARRAY"
            return pa.decimal128(type_.precision, type_.scale)
        if pa.types.is_timestamp(type_):
            self.is_beyond_spark |= type_.unit == "ns"
            # Spark reads INT96 as instants in UTC. Use microseconds: a later cast to this type
            # refuses finer values.
            is_instant = type_.tz or leaf.physical_type == "INT96"
            return pa.timestamp("us", "UTC" if is_instant else None)
        self.is_beyond_spark |= pa.types.is_float16(type_)
        if pa.types.is_fixed_size_binary(type_):
            return pa.binary()
        return _PLAIN_TYPES.get(type_, type_)

    def _refusal(self, leaf: pq.ColumnSchema, why: str) -> RefusedError:
        return FilesError(f'{self._path.name}: column "{leaf.path}" {why}')


def _chunks(file: pq.ParquetFile) -> Iterator[pq.ColumnChunkMetaData]:
    for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
        yield from map(group.column, range(group.num_columns))


def _rewrite(source: Path, file: pq.ParquetFile, schema: pa.Schema, target: Path) -> None:
    """Write the rows of a Parquet file in types and codecs that Spark reads.

    Raises:
        FilesError: a value would change.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(target, schema) as writer:
        for batch in file.iter_batches():
            arrays = [
                plain_values(source, field, column)
                for field, column in zip(schema, batch.columns, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def plain_values(source: Path, field: pa.Field, column: pa.Array) -> pa.Array:
    """Convert a column of a Parquet file to the type of a plain field.

    Raises:
        FilesError: a value would change.
    """
    try:
        bare = _uuids_as_bytes(field.type, column.type)
        values = column.cast(bare)
        if bare == field.type:
            return values
        return pa.array(
            [_uuids_as_texts(value, bare, field.type) for value in values.to_pylist()], field.type
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        problem = f"values that do not fit {field.type}"
        if _has_nanoseconds(column.type):
            problem = "times finer than microseconds, which neither Spark nor Tableau has"
        raise FilesError(f'{source.name}: column "{field.name}" has {problem}: {error}') from error


def _has_nanoseconds(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.TimestampType):
        return type_.unit == "ns"
    return any(_has_nanoseconds(type_.field(index).type) for index in range(type_.num_fields))


def _uuids_as_bytes(type_: pa.DataType, before: pa.DataType) -> pa.DataType:
    """Return a type with UUIDs as bytes instead of text, because Arrow cannot cast them to text."""
    if isinstance(before, pa.BaseExtensionType):
        return _uuids_as_bytes(type_, before.storage_type)
    if isinstance(before, pa.FixedSizeBinaryType) and pa.types.is_string(type_):
        return before
    if isinstance(type_, pa.StructType):
        pairs = zip(type_, before, strict=True)
        return pa.struct([new.with_type(_uuids_as_bytes(new.type, old.type)) for new, old in pairs])
    if isinstance(type_, pa.MapType):
        key = _uuids_as_bytes(type_.key_type, before.key_type)
        return pa.map_(key, _uuids_as_bytes(type_.item_type, before.item_type))
    if isinstance(type_, pa.ListType):
        return pa.list_(_uuids_as_bytes(type_.value_type, before.value_type))
    return type_


def _uuids_as_texts(value: Any, before: pa.DataType, type_: pa.DataType) -> Any:
    """Return a value with all UUIDs in it converted from bytes to text."""
    if value is None or before == type_:
        return value
    if isinstance(type_, pa.StructType):
        return {
            new.name: _uuids_as_texts(value[new.name], old.type, new.type)
            for new, old in zip(type_, before, strict=True)
        }
    if isinstance(type_, pa.MapType):
        key, item = (before.key_type, type_.key_type), (before.item_type, type_.item_type)
        return [
            (_uuids_as_texts(name, *key), _uuids_as_texts(content, *item))
            for name, content in value
        ]
    if isinstance(type_, pa.ListType):
        return [_uuids_as_texts(element, before.value_type, type_.value_type) for element in value]
    return str(UUID(bytes=value))
