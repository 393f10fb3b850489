"""Write the rows of Parquet files of any writer in types and encodings that hyperd reads exactly.

The columns get the types that Spark would give them.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.errors import FilesError
from tableau_pipeline.hyper.types import Column, json_text
from tableau_pipeline.ingest.columns import Columns
from tableau_pipeline.ingest.json_texts import json_texts
from tableau_pipeline.ingest.options import Files, check_options
from tableau_pipeline.ingest.parquet_files import opened, plain_values
from tableau_pipeline.ingest.values import call_arrow
from tableau_pipeline.objects.arrow_files import SPARK_SCHEMA

# Rows that are read and written at once.
_BATCH = 1 << 16
# Under these keys, Spark stores its version in a file, and the calendar of times.
_SPARK_VERSION = b"org.apache.spark.version"
_LEGACY_TIMES, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"
# Before these two moments, the older calendar and the older clocks show other values.
_GREGORIAN, _STANDARD_TIME = date(1582, 10, 15), datetime(1900, 1, 1, tzinfo=UTC)
_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}


def new_parquet(path: Path, schema: pa.Schema) -> AbstractContextManager[pq.ParquetWriter]:
    """Create a Parquet file that is read as a whole, by hyperd or Spark."""
    return pq.ParquetWriter(
        path, schema, write_statistics=False, use_dictionary=False, store_decimal_as_integer=True
    )


def parquet_rows(files: Files, targets: Sequence[Path], *, nested: bool) -> Columns:
    """Write the rows of Parquet files to other Parquet files; return the columns.

    Args:
        nested: see `read_rows`.

    Raises:
        RefusedError: a file is damaged, a value in it would change, or the columns differ.
    """
    no_columns(files)
    check_options(files.reader, "parquet")
    schemas, kinds, comments = [], dict[str, str](), dict[str, str]()
    for path in files.paths:
        with opened(path) as (file, schema):
            schemas.append(schema)
            for field in _spark_fields(file):
                comments.setdefault(field["name"], field.get("metadata", {}).get("comment", ""))
                # Only Spark's own schema distinguishes intervals from numbers, variants from bytes.
                if field["type"] == "variant":
                    raise FilesError(
                        f'{path.name}: column "{field["name"]}" is a variant, which only Spark '
                        "reads: write its JSON text instead"
                    )
                if str(field["type"]).startswith("interval"):
                    kinds[field["name"]] = field["type"]
    merged = check_alike(files, schemas)
    columns = tuple(
        Column(each.name, kinds.get(each.name) or name_of(each.type)) for each in merged
    )
    for path, target in zip(files.paths, targets, strict=True):
        with opened(path) as (file, _):
            _check_calendar(path, file, merged, files.reader)
            _write(path, file, merged, target, nested=nested)
    return Columns(columns, {name: text for name, text in comments.items() if text})


def no_columns(files: Files) -> None:
    """Refuse declared columns.

    Raises:
        FilesError: columns are declared.
    """
    if files.columns:
        raise FilesError(
            "columns cannot be declared for Parquet files, which have types: remove `columns`",
        )


def check_alike(files: Files, schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the columns of all files; the option `mergeSchema` lets a file lack some.

    Raises:
        FilesError: a column is absent in a file, or has another type there.
    """
    merges = files.reader.get("mergeSchema", "false").lower() == "true"
    merged = {field.name: field for field in schemas[0]}
    for path, schema in zip(files.paths[1:], schemas[1:], strict=True):
        here = {field.name: field for field in schema}
        for name in merged | here:
            types = [str(each[name].type) if name in each else "absent" for each in (here, merged)]
            if types[0] != types[1] and not (merges and "absent" in types):
                raise FilesError(
                    f'column "{name}" is {types[0]} in {path.name} and {types[1]} in '
                    f"{files.paths[0].name}: publish such files one by one, or, if columns are "
                    'only absent, set reader: {mergeSchema: "true"}',
                )
        # The columns of the first file come first, in its order.
        merged |= {name: field for name, field in here.items() if name not in merged}
    return pa.schema([*merged.values()])


def name_of(type_: pa.DataType) -> str:
    """Return the name that Spark gives to a plain type of Arrow."""
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_):
        return "timestamp" if type_.tz else "timestamp_ntz"
    if isinstance(type_, pa.StructType):
        return f"struct<{','.join(f'{field.name}:{name_of(field.type)}' for field in type_)}>"
    if isinstance(type_, pa.MapType):
        return f"map<{name_of(type_.key_type)},{name_of(type_.item_type)}>"
    if isinstance(type_, pa.ListType):
        return f"array<{name_of(type_.value_type)}>"
    return _NAMES[type_]


def is_nested(type_: pa.DataType) -> bool:
    """Whether a type has parts, so that Tableau can only have its JSON text."""
    return pa.types.is_nested(type_)


def _spark_fields(file: pq.ParquetFile) -> Sequence[Mapping[str, Any]]:
    schema = (file.metadata.metadata or {}).get(SPARK_SCHEMA)
    return json.loads(schema)["fields"] if schema else []


def _write(
    path: Path, file: pq.ParquetFile, schema: pa.Schema, target: Path, *, nested: bool
) -> None:
    stored = pa.schema(
        [
            pa.field(json_text(field.name), pa.string()) if is_nested(field.type) else field
            for field in schema
            if nested or not is_nested(field.type)
        ]
    )
    present = {*file.schema_arrow.names}
    with new_parquet(target, stored) as parquet:
        for batch in file.iter_batches(_BATCH):
            arrays = []
            for field in schema:
                if is_nested(field.type) and not nested:
                    continue
                if field.name in present:
                    values = plain_values(path, field, batch.column(field.name))
                else:
                    values = pa.nulls(batch.num_rows, field.type)
                arrays.append(json_texts(values) if is_nested(field.type) else values)
            parquet.write_batch(pa.RecordBatch.from_arrays(arrays, schema=stored))


def _check_calendar(
    path: Path, file: pq.ParquetFile, schema: pa.Schema, reader: Mapping[str, str]
) -> None:
    """Refuse old times in files in which Spark has stored them in an older calendar.

    Raises:
        FilesError: names the column.
    """
    footer = file.metadata.metadata or {}
    for at in range(len(file.schema)):
        leaf = file.schema.column(at)
        is_int96 = leaf.physical_type == "INT96"
        is_old = _is_of_old_calendar(footer, reader, int96=is_int96)
        if not is_old or "." in leaf.path:
            continue
        type_ = schema.field(leaf.path).type
        if pa.types.is_date(type_):
            first: date = _GREGORIAN
        elif pa.types.is_timestamp(type_):
            first = _STANDARD_TIME if type_.tz else _STANDARD_TIME.replace(tzinfo=None)
        else:
            continue
        limit = pa.scalar(first, type_)
        for batch in file.iter_batches(_BATCH, columns=[leaf.path]):
            values = batch.column(0).cast(type_)
            if call_arrow("any", call_arrow("less", values, limit)).as_py():
                raise FilesError(
                    f'{path.name}: column "{leaf.path}" has times before {first:%Y-%m-%d}, and '
                    "an old release of Spark stored them in an older calendar: write the file "
                    "again with a newer one",
                )


def _is_of_old_calendar(
    footer: Mapping[bytes, bytes], reader: Mapping[str, str], *, int96: bool
) -> bool:
    option = "int96RebaseMode" if int96 else "datetimeRebaseMode"
    if version := footer.get(_SPARK_VERSION):
        newest = (3, 1) if int96 else (3, 0)
        marked = footer.get(_LEGACY_INT96 if int96 else _LEGACY_TIMES) is not None
        return marked or tuple(map(int, version.decode().split(".")[:2])) < newest
    given = {name.lower(): value for name, value in reader.items()}
    return given.get(option.lower(), "CORRECTED").upper() != "CORRECTED"
