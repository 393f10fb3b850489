"""Load CSV and JSON files: their rows are stored as Parquet for Spark to read."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.arrow_columns import arrow_type, declared, stored_schema
from tableau_pipeline.ingest.bad_rows import BadRows
from tableau_pipeline.ingest.found import Files, digests, ending
from tableau_pipeline.ingest.options import Options, text_options
from tableau_pipeline.ingest.reading import Reading
from tableau_pipeline.ingest.text.csv_files import csv_batches, csv_schema
from tableau_pipeline.ingest.text.json_files import json_batches, json_schema
from tableau_pipeline.snapshots.write import exact_path


def load_text(spark: SparkSession, files: Files, folder: Path) -> Reading:
    """Load the good rows of text files, which are written as Parquet first.

    Args:
        folder: for the Parquet files; it must exist as long as the frame is used.

    Raises:
        RefusedError: a file cannot be read, or does not have the required columns.
    """
    before = digests(files.paths)
    schema, written, bad = as_parquet(files, folder)
    frame = spark.read.schema(stored_schema(schema)).parquet(*map(exact_path, written))
    reading = Reading(frame, before, bad)
    # From here on the rows come from the copy, so a later change of the files does no harm.
    reading.check_unchanged()
    return reading


def as_parquet(files: Files, folder: Path) -> tuple[StructType, list[Path], BadRows]:
    """Write the good rows of text files as Parquet.

    Returns:
        Their columns, one Parquet file for each of them with the same name, and the bad rows.

    Raises:
        RefusedError: a file cannot be read, or does not have the required columns.
    """
    tabs = all(ending(path) == ".tsv" for path in files.paths)
    options = text_options(files.reader, files.format, tabs=tabs)
    bad = BadRows(options)
    schema, batches = _columns(files, options, bad)
    written = []
    for number, path in enumerate(files.paths):
        # The Parquet file keeps the file name, which identifies the origin of each row.
        target = folder / str(number) / path.name
        _write(batches(path), schema, target)
        written.append(target)
    return schema, written, bad


def _columns(
    files: Files, options: Options, bad: BadRows
) -> tuple[StructType, Callable[[Path], Iterator[pa.RecordBatch]]]:
    """Return the columns of files, and a function that reads one file."""
    columns = declared(files.columns) if files.columns else None
    if files.format == "csv":
        is_set = any(name.lower() in ("sep", "delimiter") for name in files.reader)
        schema = csv_schema(files.paths, options, columns, separator_is_set=is_set)
        return schema, lambda path: csv_batches(path, options, schema, bad)
    schema = json_schema(files.paths, options, columns)
    seen: set[str] = set()

    def read(path: Path) -> Iterator[pa.RecordBatch]:
        yield from json_batches(path, options, schema, bad, seen=seen)
        # Any object may omit a name, so only the end of the last file shows which names there are.
        if path == files.paths[-1] and seen:
            _check_seen(seen, schema.names)

    return schema, read


def _check_seen(seen: Collection[str], columns: Sequence[str]) -> None:
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
    for name in sorted(set(seen) - set(columns)):
        if name.casefold() in folded:
            raise RefusedError(
                f'The objects have "{folded[name.casefold()]}" and "{name}", which differ only in '
                "case: use one spelling"
            )


def _write(batches: Iterable[pa.RecordBatch], schema: StructType, target: Path) -> None:
    fields = [pa.field(each.name, arrow_type(each.dataType)) for each in schema.fields]
    target.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(target, pa.schema(fields)) as writer:
        for batch in batches:
            writer.write_batch(batch)
