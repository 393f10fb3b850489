"""Read files exactly for Spark: a value arrives unchanged, or the row is refused.

No other module of `ingest` imports Spark.
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
# The rows of each frame that `read_files` has read from CSV or JSON. A model that changes the rows
# makes a new frame, which has no entry.
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

    A value arrives unchanged, or the row is bad: no number, date or text ever changes.

    This process reads CSV and JSON, and passes the rows to Spark in Parquet files. If a model
    returns the rows unchanged, these Parquet files become the model's snapshot.

    Args:
        path: a file, a folder, or a pattern such as "exports/*.csv".
        columns: names and types as Spark's DDL, "id bigint, day date". By default, the columns are
            inferred from all values, which may read the files twice. Parquet files contain their
            columns.
        format: by default, determined by the file name suffixes.
        reader: options such as {"sep": ";", "decimal": ","}; docs/reference/files.md lists them.
        bad_rows: what to do if rows do not fit the columns: refuse all rows, or drop the bad rows
            with a warning.
        folder: the folder for the Parquet files that this function writes, which exist until this
            process ends. Every executor must be able to read these files. The default is the
            system's folder for temporary files.

    Raises:
        RefusedError: a file cannot be read, or rows do not fit the columns. The message names the
            remedy, and the line, column and value of bad rows.
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
    """Return the rows of a frame that `read_files` has read from CSV or JSON; None for others."""
    return _ROWS.get(frame)


def rows_frame(spark: SparkSession, rows: Rows) -> DataFrame:
    """Return the rows of text files as a frame, with the comments of the columns."""
    paths = [exact_path(file.path.absolute()) for file in rows.files]
    return spark.read.schema(rows.columns.quoted_ddl).parquet(*paths)


def _parquet_frame(spark: SparkSession, files: Files, folder: Path) -> DataFrame:
    """Load the rows of Parquet files; rewrite files that Spark cannot read."""
    no_columns(files)
    check_options(files.reader, "parquet")
    schemas, paths = [], []
    for number, path in enumerate(files.paths):
        # Give the copies new names: Spark skips names that begin with "_" or ".", and its file
        # system does not accept colons.
        target = folder / f"copy-{uuid4().hex[:8]}-{number}" / "rows.parquet"
        schema, is_copied = copy_if_unreadable(path, target)
        schemas.append(schema)
        paths.append(exact_path(target if is_copied else path))
    check_alike(files, schemas)
    return spark.read.options(**files.reader).parquet(*paths)
