"""Read files exactly: a value arrives as the file has it, or its row is refused."""

import atexit
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.errors import BadRows, Reading, json_text, printable
from tableau_pipeline.ingest.options import (
    Files,
    Format,
    Options,
    digests,
    ending,
    format_of,
    found_files,
    text_options,
)
from tableau_pipeline.ingest.parquet import load_parquet
from tableau_pipeline.ingest.text import (
    UnusualError,
    csv_records,
    json_objects,
    quick_csv,
)
from tableau_pipeline.ingest.values import (
    STRINGS,
    TIMES,
    Guess,
    arrow_type,
    check_names,
    converted,
    declared,
    without_nulls,
)
from tableau_pipeline.snapshots.write import exact_path

_LOG = logging.getLogger(__name__)
_OTHER_SEPARATORS = (";", "\t", "|", ",")
# The line and the values of a record.
Row = tuple[int, Sequence[str | None]]
# Rows that are converted at once: enough for Arrow to be fast, few enough to fit in memory.
_AT_ONCE = 20_000


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

    A value arrives as the file has it, or its row is bad: no number, date or text ever changes. CSV
    and JSON are read by this process, and passed to Spark as Parquet.

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
    paths = found_files(str(path))
    waiting = Path(mkdtemp(prefix="files-", dir=folder))
    atexit.register(shutil.rmtree, waiting, ignore_errors=True)
    reading = load(spark, Files(paths, format or format_of(paths), reader or {}, columns), waiting)
    if bad_rows == "refuse":
        reading.check_rows()
    elif reading.bad_rows:
        _LOG.warning("%s: left out %s rows: %s", path, f"{reading.bad_rows:,}", reading.sample)
    return reading.frame


def load(spark: SparkSession, files: Files, folder: Path) -> Reading:
    """Read files whose paths may contain any characters.

    Args:
        folder: for the rows as Parquet, as long as the frame is used.

    Raises:
        RefusedError: a file cannot be read, or does not have the required columns.
    """
    if files.format == "parquet":
        if files.columns:
            raise RefusedError(
                "columns cannot be declared for Parquet files, which contain their types: remove it"
            )
        return load_parquet(spark, files, folder)
    before = digests(files.paths)
    schema, written, bad = as_parquet(files, folder)
    # Spark stores char and varchar as string.
    stored = [
        T.StructField(
            each.name,
            T.StringType() if isinstance(each.dataType, STRINGS) else each.dataType,
            metadata=each.metadata,
        )
        for each in schema.fields
    ]
    frame = spark.read.schema(T.StructType(stored)).parquet(*map(exact_path, written))
    reading = Reading(frame, before, bad)
    # From here on the rows come from the copy, so a later change of the files does no harm.
    reading.check_unchanged()
    return reading


def as_parquet(files: Files, folder: Path) -> tuple[T.StructType, list[Path], BadRows]:
    """Write the good rows of text files as Parquet.

    Returns:
        Their columns, one Parquet file for each of them with the same name, and the bad rows.

    Raises:
        RefusedError: a file cannot be read, or does not have the required columns.
    """
    tabs = all(ending(path) == ".tsv" for path in files.paths)
    options = text_options(files.reader, files.format, tabs=tabs)
    columns = declared(files.columns) if files.columns else None
    is_csv = files.format == "csv"
    schema = (_csv_schema if is_csv else _json_schema)(files, options, columns)
    for field in schema.fields:
        if arrow_type(field.dataType) is None:
            raise RefusedError(
                f'column "{field.name}": {"text" if is_csv else "JSON"} cannot hold '
                f"{field.dataType.simpleString()}: declare it as string"
            )
    bad, seen, written = BadRows(files), set[str](), []
    for number, path in enumerate(files.paths):
        # The Parquet file keeps the file name, which identifies the origin of each row.
        target = folder / str(number) / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if is_csv:
            rows = _full_rows(path, options, len(schema), bad)
            try:
                _write(_quick_batches(path, options, schema), schema, target)
            except UnusualError:
                _write(_batches(rows, schema, options, bad=bad, path=path), schema, target)
        else:
            rows = _json_rows(path, schema, options, seen=seen, bad=bad)
            _write(_batches(rows, schema, options, bad=bad, path=path), schema, target)
        written.append(target)
    # Any object may omit a name, so only the end of the last file shows which names there are.
    if seen:
        _check_seen(seen, schema.names)
    return schema, written, bad


def _arrow_schema(schema: T.StructType) -> pa.Schema:
    return pa.schema([pa.field(each.name, arrow_type(each.dataType)) for each in schema.fields])


def _write(batches: Iterable[pa.RecordBatch], schema: T.StructType, target: Path) -> None:
    with pq.ParquetWriter(target, _arrow_schema(schema)) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _quick_batches(path: Path, options: Options, schema: T.StructType) -> Iterator[pa.RecordBatch]:
    """Read the rows of a simple file without a bad row.

    Raises:
        UnusualError: it is none, or has bad rows, whose lines are known only to `_batches`.
    """
    blocks = quick_csv(path, options, len(schema))

    def following() -> list[pa.Array]:
        return next(blocks, [])

    def column(texts: pa.Array, field: T.StructField) -> pa.Array:
        texts = without_nulls(texts, field.dataType, options)
        values = converted(texts, field.dataType, options)
        if values.null_count > texts.null_count:
            raise UnusualError
        return values

    with ThreadPoolExecutor() as pool:
        ahead = pool.submit(following)
        while texts := ahead.result():
            arrays = [*pool.map(column, texts, schema.fields)]
            # The next block is split into values while this one is written.
            ahead = pool.submit(following)
            yield pa.RecordBatch.from_arrays(arrays, schema=_arrow_schema(schema))


def _batches(
    rows: Iterable[Row], schema: T.StructType, options: Options, *, bad: BadRows, path: Path
) -> Iterator[pa.RecordBatch]:
    """Convert the good rows of a file; count the others in `bad`."""
    for lines, columns in _chunks(rows):
        wrong: dict[int, list[tuple[T.StructField, str]]] = {}
        texts, arrays = [], []
        for field, values in zip(schema.fields, columns, strict=True):
            found = pa.array(values, pa.string())
            if bad.files.format == "csv":
                found = without_nulls(found, field.dataType, options)
            texts.append(found)
            arrays.append(converted(found, field.dataType, options))
            misfits = pc.call_function("and", [found.is_valid(), arrays[-1].is_null()])
            for row in pc.call_function("indices_nonzero", [misfits]).to_pylist():
                wrong.setdefault(row, []).append((field, values[row]))
        for row in sorted(wrong):
            bad.add_values(f"{path.name}, line {lines[row]}", wrong[row])
        if wrong:
            good = pa.array([row for row in range(len(lines)) if row not in wrong], pa.int64())
            for name, found in zip(schema.names, texts, strict=True):
                bad.keep_good(name, found.take(good))
            arrays = [array.take(good) for array in arrays]
        yield pa.RecordBatch.from_arrays(arrays, schema=_arrow_schema(schema))


def _chunks(rows: Iterable[Row]) -> Iterator[tuple[Sequence[int], Sequence[Sequence[Any]]]]:
    """Yield the lines of some rows, and their values by column."""
    rows = iter(rows)
    while chunk := list(islice(rows, _AT_ONCE)):
        lines, values = zip(*chunk, strict=True)
        yield lines, [*zip(*values, strict=True)]


def _csv_schema(files: Files, options: Options, declared: T.StructType | None) -> T.StructType:
    """Return the columns of files that must all have the same ones.

    Raises:
        RefusedError: headers differ from each other or from the declared columns, or the
            separator is wrong.
    """
    has_separator = any(name.lower() in ("sep", "delimiter") for name in files.reader)
    first, *others = files.paths
    names = _names(first, options, separator_is_set=has_separator)
    for path in others:
        if (these := _names(path, options, separator_is_set=has_separator)) != names:
            raise RefusedError(
                f"The header of {path.name} ({', '.join(these)}) differs from that of "
                f"{first.name} ({', '.join(names)}): publish such files one by one, or give "
                "them one header"
            )
    if declared is not None:
        if not options.header and len(names) == len(declared.names):
            names = declared.names
        if [name.casefold() for name in names] != [name.casefold() for name in declared.names]:
            raise RefusedError(
                f"The {'header' if options.header else 'first line'} of {first.name} has "
                f"{len(names)} columns ({', '.join(names)}), but columns declares "
                f"{', '.join(declared.names)}: declare all, in the order of the file"
            )
        return declared
    check_names(names, first.name)
    types: Sequence[T.DataType] = [T.StringType()] * len(names)
    if options.infer:
        guesses = [Guess(options) for _ in names]
        for path in files.paths:
            try:
                _guess(quick_csv(path, options, len(names)), guesses, options)
            except UnusualError:
                # Bad rows are reported when the rows are read, not during inference.
                rows = _full_rows(path, options, len(names), BadRows(files))
                chunks = (columns for _, columns in _chunks(rows))
                columns = ([pa.array(each, pa.string()) for each in chunk] for chunk in chunks)
                _guess(columns, guesses, options)
        types = [guess.type for guess in guesses]
    return T.StructType([T.StructField(*each) for each in zip(names, types, strict=True)])


def _names(path: Path, options: Options, *, separator_is_set: bool) -> list[str]:
    first = next((values for _, values in csv_records(path, options) if values), None)
    if first is None:
        raise RefusedError(
            f"{path.name} is empty: it has no {'header' if options.header else 'rows'}"
        )
    # With the wrong separator a whole file would be published as one column of text.
    if len(first) == 1 and first[0] and not separator_is_set:
        for separator in _OTHER_SEPARATORS:
            if separator != options.separator and separator in first[0]:
                raise RefusedError(
                    f'{path.name} has only one column with the separator {options.separator!r}, "'
                    f'{first[0][:80]}": set reader: {{sep: {separator!r}}}, or, if that is right, '
                    f"reader: {{sep: {options.separator!r}}}"
                )
    # Spark's names for unnamed columns; pandas, for example, writes its index without a name.
    names = first if options.header else [None] * len(first)
    return [name or f"_c{number}" for number, name in enumerate(names)]


def _guess(
    batches: Iterable[Iterable[pa.Array]], guesses: Sequence[Guess], options: Options
) -> None:
    for columns in batches:
        for guess, texts in zip(guesses, columns, strict=True):
            guess.see(without_nulls(texts, T.LongType(), options))


def _full_rows(
    path: Path, options: Options, width: int, bad: BadRows
) -> Iterator[tuple[int, list[str | None]]]:
    """Yield the records that have a value for each column."""
    header = options.header
    for line, values in csv_records(path, options):
        place = f"{path.name}, line {line}"
        if header and values:
            header = False
        elif len(values) == width:
            yield line, values
        elif not values and width == 1:
            bad.add(place, 'a blank line, which may be NULL or no row: write "" for an empty text')
        elif values:
            shown = printable(options.separator.join(value or "" for value in values)[:80])
            bad.add(
                place,
                f"{len(values)} value{'s' * (len(values) > 1)} for {width} "
                f'column{"s" * (width > 1)}, "{shown}"',
            )


def _json_schema(files: Files, options: Options, declared: T.StructType | None) -> T.StructType:
    """Return the columns of files, sorted by name unless they are declared.

    Raises:
        RefusedError: two names differ only in case; also as `json_objects`.
    """
    if declared is not None:
        return declared
    guesses: dict[str, Guess] = {}
    # Bad rows are reported when the rows are read, not during inference.
    bad = BadRows(files)
    objects = (each for path in files.paths for _, each in json_objects(path, options, bad))
    while chunk := list(islice(objects, _AT_ONCE)):
        for name in {name for each in chunk for name in each}:
            texts = [json_text(each[name]) for each in chunk if each.get(name) is not None]
            guesses.setdefault(name, Guess(options)).see(pa.array(texts, pa.string()))
    first = files.paths[0].name
    if not guesses:
        raise RefusedError(
            f"{first} has no objects with values: there are no columns"
            + "".join(f". {example}" for example in bad.examples[:1])
        )
    check_names(sorted(guesses), first)
    return T.StructType([T.StructField(name, guesses[name].type) for name in sorted(guesses)])


def _json_rows(
    path: Path, schema: T.StructType, options: Options, *, seen: set[str], bad: BadRows
) -> Iterator[Row]:
    """Yield the values of the columns as text; collect the names of the objects in `seen`."""
    for line, row in json_objects(path, options, bad):
        seen.update(row)
        yield line, [_json_value(row.get(each.name), each.dataType) for each in schema]


def _json_value(value: Any, type_: T.DataType) -> str | None:
    """Return a text as it is if the type is one of texts, other values as JSON."""
    is_text = value is None or (type(value) is str and isinstance(type_, STRINGS + TIMES))
    return value if is_text else json_text(value)


def _check_seen(seen: set[str], columns: Sequence[str]) -> None:
    """Refuse JSON whose names are not those of the columns, or only nearly so.

    Args:
        seen: the names that the objects have.
    """
    absent = [name for name in columns if name not in seen]
    if absent:
        raise RefusedError(
            f'columns declares "{absent[0]}", which no object has; the objects have '
            f"{', '.join(sorted(seen))}"
        )
    folded = {name.casefold(): name for name in columns}
    # Its values would be left out, and the column would be NULL in their place.
    for name in sorted(seen - set(columns)):
        if name.casefold() in folded:
            raise RefusedError(
                f'The objects have "{folded[name.casefold()]}" and "{name}", which differ only in '
                "case: use one spelling"
            )
