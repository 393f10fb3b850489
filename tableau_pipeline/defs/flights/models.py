from functools import partial

import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline.defs.flights import column_descriptions as columns
from tableau_pipeline.defs.flights import transformations

model = partial(dg.asset, group_name="nyc_flights", owners=["team:aviation"])


@model(metadata=columns.schema(columns.FLIGHTS))
def flights(raw_flights: DataFrame) -> DataFrame:
    """One row per flight scheduled to leave New York City: planned and actual times, delays.

    Cancelled flights are kept, without a departure. Local times are those of the clock at the
    airport; `scheduled_departure_utc` compares across time zones. Delays and air time in minutes,
    distance in miles.
    """
    return transformations.flights(raw_flights)


@model(metadata=columns.schema(columns.AIRLINES))
def airlines(raw_airlines: DataFrame) -> DataFrame:
    """One row per airline: the name behind the `carrier` code of a flight."""
    return transformations.airlines(raw_airlines)


@model(metadata=columns.schema(columns.AIRPORTS))
def airports(raw_airports: DataFrame) -> DataFrame:
    """One row per airport: name, place and time zone behind a flight's `destination`."""
    return transformations.airports(raw_airports)


@model(metadata=columns.schema(columns.PLANES))
def planes(raw_planes: DataFrame) -> DataFrame:
    """One row per plane: what flew under a `tail_number`, and when it was built.

    Of planes that are not on the register, only the tail number is known.
    """
    return transformations.planes(raw_planes)


@model(metadata=columns.schema(columns.DAILY_DEPARTURES))
def daily_departures(flights: DataFrame) -> DataFrame:
    """One row per day and airport of origin: flights, cancellations, delays at departure.

    A flight counts as delayed from 15 minutes on.
    """
    return transformations.daily_departures(flights)
