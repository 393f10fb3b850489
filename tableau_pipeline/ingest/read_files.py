"""Read files exactly: a value arrives as the file has it, or its row is refused."""

import atexit
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.found import Files, Format, format_of, found_files
from tableau_pipeline.ingest.parquet.load_parquet import load_parquet
from tableau_pipeline.ingest.reading import Reading
from tableau_pipeline.ingest.text.load_text import load_text

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
    """Read the rows of CSV, JSON or Parquet files, for a model to return.

    A value arrives as the file has it, or its row is bad: no number, date or text ever changes. CSV
    and JSON are parsed here, row by row, and passed to Spark as Parquet.

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
    return load_text(spark, files, folder)
