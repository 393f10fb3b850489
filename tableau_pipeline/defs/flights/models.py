from collections.abc import Mapping
from functools import partial

import dagster as dg
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

# The US Department of Transportation counts a flight with this delay, or more, as delayed.
_DELAYED_MINUTES = 15
# Descriptions of columns, which Dagster and Tableau show.
FLIGHTS = {
    "flight_id": ("string", "Day, airline, number and origin: identifies a flight."),
    "flight_date": ("date", "Day of the scheduled departure, at the origin."),
    "carrier": ("string", "Two-character code of the airline."),
    "flight_number": ("int", "Number of the flight, without the airline's code."),
    "tail_number": ("string", "Registration of the plane."),
    "origin": ("string", "FAA code of the airport of departure in New York City: EWR, JFK, LGA."),
    "destination": ("string", "FAA code of the scheduled airport of arrival."),
    "scheduled_departure": ("timestamp_ntz", "Scheduled departure, by the clock at the origin."),
    "departure": (
        "timestamp_ntz",
        "Actual departure, by the clock at the origin; NULL for a cancelled flight.",
    ),
    "departure_delay": ("int", "Minutes; negative for an early departure."),
    "scheduled_arrival": ("timestamp_ntz", "Scheduled arrival, by the clock at the destination."),
    "arrival": ("timestamp_ntz", "Actual arrival, by the clock at the destination."),
    "arrival_delay": ("int", "Minutes; negative for an early arrival."),
    "air_time": ("int", "Minutes in the air."),
    "distance": ("int", "Miles between the two airports."),
    "scheduled_departure_utc": (
        "timestamp",
        "Scheduled departure in UTC, comparable between time zones.",
    ),
    "cancelled": ("boolean", "Whether the flight never left."),
}
AIRLINES = {
    "carrier": ("string", "Two-character code of the airline."),
    "airline": ("string", "Name of the airline."),
}
AIRPORTS = {
    "airport": ("string", "FAA code."),
    "airport_name": ("string", "Name of the airport."),
    "latitude": ("double", "Degrees north."),
    "longitude": ("double", "Degrees east."),
    "altitude_feet": ("int", "Feet above the sea."),
    "utc_offset": ("int", "Hours of the standard time from UTC."),
    "dst": ("string", "Daylight saving time: A as in the US, N none, U unknown."),
    "time_zone": ("string", "Name of the time zone: America/New_York."),
}
PLANES = {
    "tail_number": ("string", "Registration of the plane."),
    "year_built": ("int", "Year of manufacture."),
    "plane_type": ("string", "Type of the plane, such as: fixed wing multi engine."),
    "manufacturer": ("string", "Manufacturer of the plane."),
    "model": ("string", "The manufacturer's name of the model."),
    "engines": ("int", "Number of engines."),
    "seats": ("int", "Number of seats."),
    "cruise_speed": ("int", "Miles per hour; rarely known."),
    "engine_type": ("string", "Type of the engines, such as: turbo-fan."),
}
DAILY_DEPARTURES = {
    "flight_date": ("date", "The day on which the flights were scheduled to leave."),
    "origin": ("string", "FAA code of the airport of departure."),
    "flights": ("bigint", "Flights that were scheduled."),
    "cancelled_flights": ("bigint", "Flights that never left."),
    "delayed_flights": ("bigint", "Flights that left 15 minutes late or later."),
    "departure_delay_minutes": (
        "bigint",
        "Sum over the flights that left, for averages over several days; NULL if no flight left.",
    ),
    "average_departure_delay": ("decimal(9,2)", "Minutes; NULL if no flight left."),
}
model = partial(dg.asset, group_name="flights", owners=["team:aviation"])


def _schema(columns: Mapping[str, tuple[str, str]]) -> dict[str, dg.TableSchema]:
    """Return metadata of an asset: columns with their types and descriptions."""
    described = [dg.TableColumn(name, *column) for name, column in columns.items()]
    return {"dagster/column_schema": dg.TableSchema(described)}


@model(metadata=_schema(FLIGHTS))
def flights(raw_flights: DataFrame) -> DataFrame:
    """One row per flight scheduled to leave New York City: planned and actual times, delays.

    Cancelled flights are included, without a departure. Local times show the clock at the airport.
    `scheduled_departure_utc` is comparable across time zones. Delays and air time are in minutes,
    distances in miles. 1,175 flights departed, but seem to have been diverted. For these flights,
    the source file lacks the arrival delay, the air time and sometimes the arrival.
    """
    day = sf.make_date("year", "month", "day")
    scheduled_departure = _at(day, sf.col("sched_dep_time"))
    # Add the delay, because the source file lacks the day of the actual departure, which may be the
    # next day.
    departure = scheduled_departure + sf.make_dt_interval(mins=sf.col("dep_delay"))
    return raw_flights.select(
        sf.concat_ws("-", day, "carrier", "flight", "origin").alias("flight_id"),
        day.alias("flight_date"),
        "carrier",
        sf.col("flight").alias("flight_number"),
        sf.col("tailnum").alias("tail_number"),
        "origin",
        sf.col("dest").alias("destination"),
        scheduled_departure.alias("scheduled_departure"),
        departure.alias("departure"),
        sf.col("dep_delay").alias("departure_delay"),
        _next(sf.col("sched_arr_time"), after=scheduled_departure).alias("scheduled_arrival"),
        _next(sf.col("arr_time"), after=departure).alias("arrival"),
        sf.col("arr_delay").alias("arrival_delay"),
        "air_time",
        "distance",
        # `time_hour` is the scheduled departure, cut to the full hour.
        (sf.col("time_hour") + sf.make_dt_interval(mins=sf.col("minute"))).alias(
            "scheduled_departure_utc"
        ),
        sf.col("dep_time").isNull().alias("cancelled"),
    )


@model(metadata=_schema(AIRLINES))
def airlines(raw_airlines: DataFrame) -> DataFrame:
    """One row per airline: the name for the `carrier` code of a flight."""
    return raw_airlines.select("carrier", sf.col("name").alias("airline"))


# Airports that are destinations of flights, but are missing in the source file of airports.
_MORE_AIRPORTS = """
    SELECT * FROM VALUES
        ('BQN', 'Rafael Hernandez', 18.4949, -67.1294, 237, -4, 'N', 'America/Puerto_Rico'),
        ('PSE', 'Mercedita', 18.0083, -66.5630, 29, -4, 'N', 'America/Puerto_Rico'),
        ('SJU', 'Luis Munoz Marin Intl', 18.4394, -66.0018, 9, -4, 'N', 'America/Puerto_Rico'),
        ('STT', 'Cyril E King', 18.3373, -64.9734, 23, -4, 'N', 'America/St_Thomas')
    AS more (faa, name, lat, lon, alt, tz, dst, tzone)
"""


@model(metadata=_schema(AIRPORTS))
def airports(raw_airports: DataFrame) -> DataFrame:
    """One row per airport: name, place and time zone for the `destination` of a flight."""
    return raw_airports.unionByName(raw_airports.sparkSession.sql(_MORE_AIRPORTS)).select(
        sf.col("faa").alias("airport"),
        sf.col("name").alias("airport_name"),
        sf.col("lat").cast("double").alias("latitude"),
        sf.col("lon").cast("double").alias("longitude"),
        sf.col("alt").alias("altitude_feet"),
        sf.col("tz").alias("utc_offset"),
        "dst",
        sf.col("tzone").alias("time_zone"),
    )


@model(metadata=_schema(PLANES))
def planes(raw_planes: DataFrame) -> DataFrame:
    """One row per plane: type and year of manufacture for the `tail_number` of a flight.

    For a plane that is not on the register, only the tail number is known.
    """
    return raw_planes.select(
        sf.col("tailnum").alias("tail_number"),
        sf.col("year").alias("year_built"),
        sf.col("type").alias("plane_type"),
        "manufacturer",
        "model",
        "engines",
        "seats",
        sf.col("speed").alias("cruise_speed"),
        sf.col("engine").alias("engine_type"),
    )


@model(metadata=_schema(DAILY_DEPARTURES))
def daily_departures(flights: DataFrame) -> DataFrame:
    """One row per day and origin: numbers of flights and cancellations, and departure delays.

    A flight counts as delayed if it left 15 minutes late or later.
    """
    delay = sf.col("departure_delay")
    return flights.groupBy("flight_date", "origin").agg(
        sf.count("*").alias("flights"),
        sf.count_if("cancelled").alias("cancelled_flights"),
        sf.count_if(delay >= _DELAYED_MINUTES).alias("delayed_flights"),
        sf.sum(delay).alias("departure_delay_minutes"),
        # Use a decimal, because its text is the same in Spark, Hyper and Tableau: 17.48. A double's
        # text differs.
        sf.avg(delay.cast("decimal(9,2)")).cast("decimal(9,2)").alias("average_departure_delay"),
    )


def _at(day: Column, hhmm: Column) -> Column:
    """Return the time on `day` at which the clock shows `hhmm`; 2400 is midnight after the day."""
    hours, minutes = (hhmm / 100).cast("int"), hhmm % 100
    return day.cast("timestamp_ntz") + sf.make_dt_interval(hours=hours, mins=minutes)


def _next(hhmm: Column, *, after: Column) -> Column:
    """Return the first time after `after` at which the clock shows `hhmm`.

    The data lacks the day of an arrival, so this function finds it. The result is right, because
    every flight takes less than a day, and because the clock at the destination shows a later time
    at the arrival than the clock at the origin showed at the departure.
    """
    same_day = _at(after.cast("date"), hhmm)
    next_day = same_day + sf.make_dt_interval(days=sf.lit(1))
    return sf.when(same_day > after, same_day).otherwise(next_day)
