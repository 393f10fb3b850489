"""Read files exactly: a value arrives as it is in the file, or its row is refused."""

import atexit
import logging
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from tableau_pipeline.errors import FilesError
from tableau_pipeline.ingest.csv_files import csv_chunks, csv_names, prefetched
from tableau_pipeline.ingest.errors import BadRows, Chunk, Reading
from tableau_pipeline.ingest.json_files import check_names_seen, json_chunks, json_schema
from tableau_pipeline.ingest.options import (
    Files,
    Format,
    ReadOptions,
    check_options,
    digests,
    ending,
    format_of,
    matching_files,
    text_options,
)
from tableau_pipeline.ingest.parquet_files import copy_if_unreadable
from tableau_pipeline.ingest.values import (
    STRINGS,
    Guess,
    arrow_type,
    call_arrow,
    check_names,
    converted,
    declared_schema,
    without_nulls,
)
from tableau_pipeline.snapshots.write import exact_path

_LOG = logging.getLogger(__name__)


def read_files(
    spark: SparkSession,
    path: Path | str,
    *,
    columns: str | None = None,
    format: Format | None = None,  # noqa: A002
    reader: Mapping[str, str] | None = None,
    bad_rows: Literal["refuse", "drop"] = "refuse",
    folder: Path | None = None,
) -> DataFrame:
    """Read the rows of CSV, JSON or Parquet files, for a model to return.

    A value arrives as it is in the file, or its row is bad: no number, date or text ever changes.
    This process reads CSV and JSON, and passes the rows to Spark as Parquet.

    Args:
        path: a file, a folder, or a pattern such as "exports/*.csv".
        columns: their types as Spark's DDL, "id bigint, day date". By default they are inferred
            from all values, which reads the files twice. Parquet files contain their types.
        format: by default, determined by the file name suffixes.
        reader: options such as {"sep": ";", "decimal": ","}; docs/reference/files.md lists them.
        bad_rows: rows that do not fit the columns: refuse all, or drop them with a warning.
        folder: for the rows of CSV and JSON as Parquet, until this process ends. Every executor
            must be able to read it. By default, the system's folder for temporary files.

    Raises:
        RefusedError: rows do not fit, reported by line, column and value; or a file cannot be
            read. The message names the remedy.
    """
    paths = matching_files(str(path))
    storage = Path(mkdtemp(prefix="files-", dir=folder))
    atexit.register(shutil.rmtree, storage, ignore_errors=True)
    reading = load(spark, Files(paths, format or format_of(paths), reader or {}, columns), storage)
    if bad_rows == "refuse":
        reading.check_rows()
    elif bad := reading.bad:
        _LOG.warning("%s: left out %s rows: %s", path, f"{bad.total:,}", "; ".join(bad.examples))
    return reading.frame


def load(spark: SparkSession, files: Files, folder: Path) -> Reading:
    """Read files whose paths may contain any characters.

    Args:
        folder: for the rows as Parquet, as long as the frame is used.

    Raises:
        RefusedError: a file cannot be read, or does not have the required columns.
    """
    if files.format == "parquet":
        return _load_parquet(spark, files, folder)
    file_digests = digests(files.paths)
    copies, bad = as_parquet(files, folder)
    stored = T.StructType()
    for field in bad.schema.fields:
        # Spark stores char and varchar as string.
        type_ = T.StringType() if isinstance(field.dataType, STRINGS) else field.dataType
        stored.add(field.name, type_, metadata=field.metadata)
    frame = spark.read.schema(stored).parquet(*map(exact_path, copies.values()))
    names = {copy.parent.name: path.name for path, copy in copies.items()}
    reading = Reading(frame, file_digests, bad if bad.total else None, names)
    # From here on, the rows come from the copies, so later changes of the files do no harm.
    reading.check_unchanged()
    return reading


def _copy_paths(files: Files, folder: Path) -> Mapping[Path, Path]:
    """Return the path for a copy of each file that Spark will read.

    Spark skips names that begin with "_" or ".", and its file system does not accept colons. So the
    copies get names of our own. Each copy has a folder, whose name identifies the file of a row.
    """
    token = uuid4().hex[:8]
    return {
        path: folder / f"copy-{token}-{number}" / "rows.parquet"
        for number, path in enumerate(files.paths)
    }


def as_parquet(files: Files, folder: Path) -> tuple[Mapping[Path, Path], BadRows]:
    """Write the good rows of text files as Parquet files; return these, and the bad rows."""
    tabs = all(ending(path) == ".tsv" for path in files.paths)
    options = text_options(files.reader, files.format, tabs=tabs)
    columns = declared_schema(files.columns) if files.columns else None
    if files.format == "csv":
        schema = _csv_schema(files, options, columns)
    else:
        schema = columns or json_schema(files.paths, options)
    for field in schema.fields:
        if arrow_type(field.dataType) is None:
            raise FilesError(
                f'column "{field.name}": {"text" if files.format == "csv" else "JSON"} cannot hold '
                f"{field.dataType.simpleString()}: declare it as string",
            )
    bad, seen, copies = BadRows(files, schema), set[str](), _copy_paths(files, folder)
    for path, target in copies.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        if files.format == "csv":
            chunks = csv_chunks(path, options, len(schema))
        else:
            chunks = json_chunks(path, options, schema, seen)
        _write_rows(path, chunks, target, options=options, bad=bad)
    # Any object may omit a name, so all names are known only after the last file.
    check_names_seen(seen, schema.names)
    return copies, bad


def _write_rows(
    path: Path, chunks: Iterator[Chunk], target: Path, *, options: ReadOptions, bad: BadRows
) -> None:
    """Write the good rows of a file to `target`; count the bad rows in `bad`."""
    fields = bad.schema.fields
    schema = pa.schema([pa.field(item.name, arrow_type(item.dataType)) for item in fields])

    def column(texts: pa.Array, field: T.StructField) -> tuple[pa.Array, pa.Array]:
        if bad.files.format == "csv":
            texts = without_nulls(texts, field.dataType, options)
        values = converted(texts, field.dataType, options)
        return values, call_arrow("and_", texts.is_valid(), values.is_null())

    # Only Spark reads the file, once and as a whole.
    parquet = pq.ParquetWriter(target, schema, write_statistics=False, use_dictionary=False)
    with parquet as writer, ThreadPoolExecutor() as pool:
        # While a chunk is converted, other threads split the next chunk and write the last one.
        written = pool.submit(lambda: None)
        for chunk in prefetched(chunks):
            arrays, wrong = zip(*pool.map(column, chunk.columns, fields), strict=True)
            rows = pa.RecordBatch.from_arrays([*arrays], schema=schema)
            if chunk.problems or any(misfits.true_count for misfits in wrong):
                rows = rows.filter(bad.add(path, chunk, wrong))
            written.result()
            written = pool.submit(writer.write_batch, rows)
        written.result()


def _csv_schema(
    files: Files, options: ReadOptions, declared_schema: T.StructType | None
) -> T.StructType:
    """Return the columns of CSV files.

    Raises:
        FilesError: a header differs from the declared columns, or from that of the first file.
    """
    check_sep = "sep" not in map(str.lower, files.reader)
    headers = [csv_names(path, options, check_sep=check_sep) for path in files.paths]
    names, where = (
        (declared_schema.names, "columns") if declared_schema else (headers[0], files.paths[0].name)
    )
    for path, header in zip(files.paths, headers, strict=True):
        is_bare = not options.header and len(header) == len(names)
        if not is_bare and [*map(str.casefold, header)] != [*map(str.casefold, names)]:
            raise FilesError(
                f"The {'header' if options.header else 'first line'} of {path.name} has "
                f"{len(header)} columns ({', '.join(header)}), but {where} has "
                f"{', '.join(names)}: declare all columns, in the order of the file, and publish "
                "files with other columns one by one",
            )
    if declared_schema is not None:
        return declared_schema
    check_names(names, where)
    guesses = [Guess(options) for _ in names]
    for path in files.paths:
        # Bad rows are reported when the rows are read.
        for chunk in csv_chunks(path, options, len(names)):
            for guess, texts in zip(guesses, chunk.columns, strict=True):
                guess.see(without_nulls(texts, T.LongType(), options))
    types = [guess.type for guess in guesses]
    return T.StructType([T.StructField(*pair) for pair in zip(names, types, strict=True)])


def _load_parquet(spark: SparkSession, files: Files, folder: Path) -> Reading:
    """Load the rows of Parquet files; files that Spark cannot read are rewritten."""
    if files.columns:
        raise FilesError(
            "columns cannot be declared for Parquet files, which contain their types: remove it",
        )
    check_options(files.reader, "parquet")
    file_digests, copies, names = digests(files.paths), _copy_paths(files, folder), {}
    schemas, paths = [], []
    for path, target in copies.items():
        schema, is_copied = copy_if_unreadable(path, target)
        schemas.append(schema)
        if is_copied:
            names[target.parent.name] = path.name
        paths.append(exact_path(target if is_copied else path))
    if files.reader.get("mergeSchema", "false").lower() != "true":
        first, *others = ({field.name: str(field.type) for field in schema} for schema in schemas)
        for path, types in zip(files.paths[1:], others, strict=True):
            for name in first | types:
                type_here, first_type = types.get(name, "absent"), first.get(name, "absent")
                if type_here != first_type:
                    raise FilesError(
                        f'column "{name}" is {type_here} in {path.name} and {first_type} in '
                        f"{files.paths[0].name}: publish such files one by one, or, if columns are "
                        'only absent, set reader: {mergeSchema: "true"}',
                    )
    frame = spark.read.options(**files.reader).parquet(*paths)
    return Reading(frame, file_digests, copies=names)
