"""Store the rows of CSV and JSON files as Parquet for Spark to read."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.arrow_columns import arrow_type, declared
from tableau_pipeline.ingest.bad_rows import BadRows
from tableau_pipeline.ingest.found import Files, ending
from tableau_pipeline.ingest.options import Options, text_options
from tableau_pipeline.ingest.text.csv_files import csv_batches, csv_schema
from tableau_pipeline.ingest.text.json_files import json_batches, json_schema


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """The good rows of files as Parquet, and the bad rows.

    Attributes:
        paths: one Parquet file for each input file, with the same name.
    """

    schema: StructType
    paths: tuple[Path, ...]
    bad: BadRows


def waiting_rows(files: Files, folder: Path) -> WaitingRows:
    """Read text files, and write their good rows as Parquet.

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
    return WaitingRows(schema, tuple(written), bad)


def _columns(
    files: Files, options: Options, bad: BadRows
) -> tuple[StructType, Callable[[Path], Iterator[pa.RecordBatch]]]:
    """Return the columns of files, and a function that reads one file."""
    columns = declared(files.columns) if files.columns else None
    if files.format == "csv":
        is_set = any(name.lower() in ("sep", "delimiter") for name in files.reader)
        schema = csv_schema(files.paths, options, columns, separator_said=is_set)
        return schema, lambda path: csv_batches(path, options, schema, bad)
    schema = json_schema(files.paths, options, columns)
    seen: set[str] = set()

    def read(path: Path) -> Iterator[pa.RecordBatch]:
        yield from json_batches(path, options, schema, bad, seen=seen)
        absent = [name for name in schema.names if name not in seen]
        # Any object may omit a name, so only the end of the last file shows that none has it.
        if path == files.paths[-1] and seen and absent:
            raise RefusedError(
                f'columns declares "{absent[0]}", which no object has; the objects have '
                f"{', '.join(sorted(seen))}"
            )

    return schema, read


def _write(batches: Iterable[pa.RecordBatch], schema: StructType, target: Path) -> None:
    fields = [pa.field(each.name, arrow_type(each.dataType)) for each in schema.fields]
    target.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(target, pa.schema(fields)) as writer:
        for batch in batches:
            writer.write_batch(batch)
