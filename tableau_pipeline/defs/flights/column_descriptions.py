"""Descriptions of the models' columns, shown by Dagster."""

from collections.abc import Mapping

import dagster as dg

FLIGHTS = {
    "flight_id": ("string", "Day, airline, number and origin: identifies a flight."),
    "flight_date": ("date", "The day on which it was scheduled to leave, at its origin."),
    "carrier": ("string", "Two-character code of the airline."),
    "flight_number": ("int", "Number of the flight, without the airline's code."),
    "tail_number": ("string", "Registration of the plane."),
    "origin": ("string", "FAA code of the airport in New York City that it left: EWR, JFK, LGA."),
    "destination": ("string", "FAA code of the airport where it was to land."),
    "scheduled_departure": ("timestamp_ntz", "By the clock at the origin."),
    "departure": ("timestamp_ntz", "By the clock at the origin; NULL if it was cancelled."),
    "departure_delay": ("int", "Minutes; negative if it left early."),
    "scheduled_arrival": ("timestamp_ntz", "By the clock at the destination."),
    "arrival": ("timestamp_ntz", "By the clock at the destination."),
    "arrival_delay": ("int", "Minutes; negative if it landed early."),
    "air_time": ("int", "Minutes in the air."),
    "distance": ("int", "Miles between the two airports."),
    "scheduled_departure_utc": ("timestamp", "Comparable between time zones."),
    "cancelled": ("boolean", "It never left."),
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
    "plane_type": ("string", "Such as: fixed wing multi engine."),
    "manufacturer": ("string", "Who built it."),
    "model": ("string", "The manufacturer's name of the model."),
    "engines": ("int", "Number of engines."),
    "seats": ("int", "Number of seats."),
    "cruise_speed": ("int", "Miles per hour; rarely known."),
    "engine_type": ("string", "Such as: turbo-fan."),
}
DAILY_DEPARTURES = {
    "flight_date": ("date", "The day on which the flights were scheduled to leave."),
    "origin": ("string", "FAA code of the airport that they left."),
    "flights": ("bigint", "Flights that were scheduled."),
    "cancelled_flights": ("bigint", "Flights that never left."),
    "delayed_flights": ("bigint", "Flights that left 15 minutes late or later."),
    "departure_delay_minutes": (
        "bigint",
        "Sum over the flights that left, for averages over several days; NULL where none left.",
    ),
    "average_departure_delay": ("decimal(9,2)", "Minutes; NULL where none left."),
}


def schema(columns: Mapping[str, tuple[str, str]]) -> dict[str, dg.TableSchema]:
    """Metadata of an asset: its columns with their types and descriptions."""
    described = [dg.TableColumn(name, *column) for name, column in columns.items()]
    return {"dagster/column_schema": dg.TableSchema(described)}
