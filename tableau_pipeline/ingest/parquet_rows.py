"""Write the rows of Parquet files of any writer in types and encodings that hyperd reads exactly.

Each column gets the type that Spark would give it.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
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
from tableau_pipeline.objects.old_calendar import (
    is_legacy,
    leaf_count,
    leaves_of,
    old_times,
    suspects,
)

# The number of rows to read and write at once.
_BATCH = 1 << 16
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
    """Create a Parquet file without statistics, because hyperd and Spark read the whole file."""
    return pq.ParquetWriter(
        path, schema, write_statistics=False, use_dictionary=False, store_decimal_as_integer=True
    )


def parquet_rows(files: Files, targets: Sequence[Path], *, nested: bool) -> Columns:
    """Rewrite Parquet files, each to its target; return the columns of all files.

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
                # Read Spark's schema in the file, because Parquet's types distinguish neither
                # intervals from numbers nor variants from bytes.
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
            _check_calendar(path, file, files.reader, nested=nested)
            _check_int96(path, file, nested=nested)
            _write(path, file, merged, target, nested=nested)
    return Columns(columns, {name: text for name, text in comments.items() if text})


def no_columns(files: Files) -> None:
    """Refuse declared columns.

    Raises:
        FilesError: the files have declared columns.
    """
    if files.columns:
        raise FilesError(
            "columns cannot be declared for Parquet files, which have types: remove `columns`",
        )


def check_alike(files: Files, schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the columns of all files; with the option `mergeSchema`, a file may lack columns.

    Raises:
        FilesError: a file lacks a column, or has it with another type.
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
        # Keep the order: first the columns of the first file, then further columns of later files.
        merged |= {name: field for name, field in here.items() if name not in merged}
    return pa.schema([*merged.values()])


def name_of(type_: pa.DataType) -> str:
    """Return Spark's name for a plain type of Arrow."""
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
    """Whether a type has parts, so that only its JSON text can be published."""
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
                arrays.append(_texts(path, field.name, values) if is_nested(field.type) else values)
            parquet.write_batch(pa.RecordBatch.from_arrays(arrays, schema=stored))


def _texts(path: Path, name: str, values: pa.Array) -> pa.Array:
    try:
        return json_texts(values)
    except (OverflowError, ValueError) as error:
        # Python cannot represent the year of a value, or a struct has two fields of the same name.
        raise FilesError(
            f'{path.name}: column "{name}" has values that cannot be written as JSON: {error}'
        ) from error


def _check_int96(path: Path, file: pq.ParquetFile, *, nested: bool) -> None:
    """Refuse INT96 time stamps with nanoseconds, which Arrow would cut off without an error.

    Raises:
        FilesError: a column has such time stamps. The message names the column.
    """
    if is_legacy(file.metadata.metadata or {}, int96=True) is not None:
        # Spark wrote the file, and Spark's times have only microseconds. So do not read the columns
        # twice.
        return
    at, names = 0, []
    for field in file.schema_arrow:
        leaves = range(at, at := at + leaf_count(field.type))
        is_int96 = any(file.schema.column(leaf).physical_type == "INT96" for leaf in leaves)
        if is_int96 and (nested or not is_nested(field.type)):
            names.append(field.name)
    if not names:
        return
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="ns") as finer:
        for name in names:
            coarse, fine = (
                each.iter_batches(_BATCH, columns=[name], use_threads=False)
                for each in (file, finer)
            )
            for some, same in zip(coarse, fine, strict=True):
                pairs = zip(leaves_of(some.column(name)), leaves_of(same.column(name)), strict=True)
                for micro, nano in pairs:
                    if nano.type != micro.type and _is_finer(micro, nano):
                        raise FilesError(
                            f'{path.name}: column "{name}" has times finer than microseconds, '
                            "which neither Spark nor Tableau has: write it again without them"
                        )


def _is_finer(micro: pa.Array, nano: pa.Array) -> bool:
    """Whether some times are finer than microseconds."""
    # Far from 1970, nanoseconds exceed 64 bits. In this case, both sides overflow in the same way.
    whole = call_arrow("multiply", micro.view(pa.int64()), 1000)
    return call_arrow("any", call_arrow("not_equal", whole, nano.view(pa.int64()))).as_py() is True


def _check_calendar(
    path: Path, file: pq.ParquetFile, reader: Mapping[str, str], *, nested: bool
) -> None:
    """Refuse old times that a release of Spark stored in an older calendar.

    Raises:
        FilesError: a column has such times. The message names the column.
    """
    footer, stored = file.metadata.metadata or {}, file.schema_arrow
    suspected = {
        name: leaves
        for name, leaves in suspects(
            file.metadata, lambda int96: _is_of_old_calendar(footer, reader, int96=int96)
        ).items()
        if nested or not is_nested(stored.field(name).type)
    }
    if found := old_times(file, suspected):
        name, first = found
        raise FilesError(
            f'{path.name}: column "{name}" has times before {first:%Y-%m-%d}, and '
            "an old release of Spark stored them in an older calendar: write the file "
            "again with a newer one",
        )


def _is_of_old_calendar(
    footer: Mapping[bytes, bytes], reader: Mapping[str, str], *, int96: bool
) -> bool:
    if (known := is_legacy(footer, int96=int96)) is not None:
        return known
    option = "int96RebaseMode" if int96 else "datetimeRebaseMode"
    given = {name.lower(): value for name, value in reader.items()}
    return given.get(option.lower(), "CORRECTED").upper() != "CORRECTED"
