"""Reading files exactly: a value is what the file says, or its row is refused."""

import atexit
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.arrow_columns import stored_schema
from tableau_pipeline.ingest.found import (
    Files,
    Format,
    digests,
    format_of,
    found_files,
)
from tableau_pipeline.ingest.parquet.load_parquet import load_parquet
from tableau_pipeline.ingest.reading import Reading
from tableau_pipeline.ingest.text.waiting import waiting_rows
from tableau_pipeline.snapshots.load import exact_path

_LOG = logging.getLogger(__name__)
_NO_OPTIONS: Mapping[str, str] = {}


def read_files(
    spark: SparkSession,
    path: Path | str,
    *,
    columns: str | None = None,
    format: Format | None = None,  # noqa: A002
    reader: Mapping[str, str] = _NO_OPTIONS,
    bad_rows: Literal["refuse", "drop"] = "refuse",
    folder: Path | None = None,
) -> DataFrame:
    """The rows of CSV, JSON or Parquet files, for a model to return.

    A value is what the file says, or its row is bad: no number, date or text ever becomes another.
    CSV and JSON are read here, row by row, and handed to Spark as Parquet.

    Args:
        path: a file, a folder, or a pattern such as "exports/*.csv".
        columns: their types as Spark's DDL, "id bigint, day date"; by default they are found out
            from all values, which reads the files twice. Parquet tells its own.
        format: by default, what the files' endings tell.
        reader: options such as {"sep": ";", "decimal": ","}; the README lists them.
        bad_rows: rows that do not fit the columns: refuse all, or drop them with a warning.
        folder: where rows of CSV and JSON wait as Parquet until this process ends; every executor
            must see it. By default the system's folder for temporary files.

    Raises:
        RefusedError: rows do not fit, by line, column and value; or a file cannot be read. It
            tells the remedy.
    """
    paths = found_files(str(path))
    files = Files(paths, format or format_of(paths), reader, columns)
    waiting = Path(mkdtemp(prefix="files-", dir=folder))
    atexit.register(shutil.rmtree, waiting, ignore_errors=True)
    reading = load(spark, files, waiting)
    if bad_rows == "refuse":
        reading.check_rows()
    elif reading.bad_rows:
        _LOG.warning("%s: left out %s rows: %s", path, f"{reading.bad_rows:,}", reading.sample)
    return reading.frame


def load(spark: SparkSession, files: Files, folder: Path) -> Reading:
    """Read files, whatever characters their paths have.

    Args:
        folder: where rows wait as Parquet as long as the frame is used.

    Raises:
        RefusedError: a file cannot be read, or has not the columns that it should have.
    """
    if files.format == "parquet":
        if files.columns:
            raise RefusedError("columns does not go with Parquet, whose files tell their own types")
        return load_parquet(spark, files, folder)
    before = digests(files.paths)
    waiting = waiting_rows(files, folder)
    paths = map(exact_path, waiting.paths)
    frame = spark.read.schema(stored_schema(waiting.schema)).parquet(*paths)
    reading = Reading(frame, before, waiting.bad)
    reading.check_unchanged()
    return reading
