"""Read files exactly with Spark: a value arrives as it is in the file, or its row is refused.

This is the only module here that imports Spark.
"""

import atexit
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal
from uuid import uuid4
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.ingest.options import Files, Format, check_options, format_of, matching_files
from tableau_pipeline.ingest.parquet_files import copy_if_unreadable
from tableau_pipeline.ingest.parquet_rows import check_alike, no_columns
from tableau_pipeline.ingest.rows import Rows, read_rows
from tableau_pipeline.snapshots.write import exact_path

_LOG = logging.getLogger(__name__)
# The rows of frames. A model that changes the rows makes a frame of its own, which is not here.
_ROWS = WeakKeyDictionary[DataFrame, Rows]()


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
    This process reads CSV and JSON, and passes the rows to Spark as Parquet. If a model returns
    them unchanged, these Parquet files become its snapshot.

    Args:
        path: a file, a folder, or a pattern such as "exports/*.csv".
        columns: names and types as Spark's DDL, "id bigint, day date". By default they are inferred
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
    files = Files(paths, format or format_of(paths), reader or {}, columns)
    if files.format == "parquet":
        return _parquet_frame(spark, files, storage)
    rows = read_rows(files, storage)
    if bad_rows == "refuse":
        rows.check()
    elif bad := rows.bad:
        _LOG.warning("%s: left out %s rows: %s", path, f"{bad.total:,}", "; ".join(bad.examples))
    frame = rows_frame(spark, rows)
    _ROWS[frame] = rows
    return frame


def rows_of(frame: DataFrame) -> Rows | None:
    """Return the rows that `read_files` has read, if a frame is what it returned."""
    return _ROWS.get(frame)


def rows_frame(spark: SparkSession, rows: Rows) -> DataFrame:
    """Return the rows of text files as a frame, with the comments of the columns."""
    paths = [exact_path(file.path.absolute()) for file in rows.files]
    return spark.read.schema(rows.columns.quoted_ddl).parquet(*paths)


def _parquet_frame(spark: SparkSession, files: Files, folder: Path) -> DataFrame:
    """Load the rows of Parquet files; files that Spark cannot read are rewritten."""
    no_columns(files)
    check_options(files.reader, "parquet")
    schemas, paths = [], []
    for number, path in enumerate(files.paths):
        # Spark skips names that begin with "_" or ".", and its file system does not accept colons.
        # So the copies get names of our own.
        target = folder / f"copy-{uuid4().hex[:8]}-{number}" / "rows.parquet"
        schema, is_copied = copy_if_unreadable(path, target)
        schemas.append(schema)
        paths.append(exact_path(target if is_copied else path))
    check_alike(files, schemas)
    return spark.read.options(**files.reader).parquet(*paths)
