from datetime import date

import dagster as dg
from pydantic import Field, field_validator
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from tableau_pipeline.defs.flights import sources
from tableau_pipeline.resources import SparkResource

_FIRST_DAY = date(2013, 1, 1)


class AsOf(dg.Config):
    """Run config of `raw_flights`."""

    as_of: str | None = Field(
        default=None,
        description="The data as it stood on the evening of this day, such as 2013-06-30: later "
        "flights are left out. By default, all of 2013.",
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


@dg.asset(group_name="nyc_flights", owners=["team:aviation"], kinds={"pyspark", "csv"})
def raw_flights(config: AsOf, spark: SparkResource) -> DataFrame:
    """Every flight scheduled to leave New York City in 2013, as the CSV file has it.

    Materialize with `as_of` in the run config to see the data as it stood on an earlier day.
    """
    flights = sources.read(spark.spark_session, "flights")
    day = sf.make_date("year", "month", "day")
    if config.corrected:
        of_the_day = day == sf.lit(_day(config.corrected))
        # Of that day, the flights that were cancelled turn out never to have been scheduled, and
        # the departures that were late turn out to have been a minute later.
        late = of_the_day & (sf.col("dep_delay") > 0)
        flights = flights.where(~of_the_day | sf.col("dep_time").isNotNull())
        flights = flights.withColumn("dep_delay", sf.col("dep_delay") + late.cast("int"))
    if config.as_of:
        flights = flights.where(day <= sf.lit(_day(config.as_of)))
    return flights


@dg.asset(group_name="nyc_flights", owners=["team:aviation"], kinds={"pyspark", "csv"})
def raw_airlines(spark: SparkResource) -> DataFrame:
    """The airlines behind the carrier codes, as the CSV file has them."""
    return sources.read(spark.spark_session, "airlines")


@dg.asset(group_name="nyc_flights", owners=["team:aviation"], kinds={"pyspark", "csv"})
def raw_airports(spark: SparkResource) -> DataFrame:
    """Airports with their coordinates and time zones, as the CSV file has them."""
    return sources.read(spark.spark_session, "airports")


@dg.asset(group_name="nyc_flights", owners=["team:aviation"], kinds={"pyspark", "csv"})
def raw_planes(spark: SparkResource) -> DataFrame:
    """The planes on the US aviation register; of others that flew, only the tail number."""
    registered = sources.read(spark.spark_session, "planes")
    flown = sources.read(spark.spark_session, "flights").select("tailnum").dropna().distinct()
    return registered.unionByName(
        flown.join(registered, "tailnum", "left_anti"), allowMissingColumns=True
    )


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text} is not a day such as 2013-06-30") from error
