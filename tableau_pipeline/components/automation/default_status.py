"""Whether this deployment refreshes by itself."""

import os

import dagster as dg

VARIABLE = "PIPELINE_TRIGGERS"


def triggers_are_on() -> bool:
    """What PIPELINE_TRIGGERS says: `on` or `off`, the default.

    A schedule or sensor starts out with it; a switch that was moved in the web UI overrules it.

    Raises:
        ValueError: it says something else.
    """
    said = os.environ.get(VARIABLE) or "off"
    if said not in ("on", "off"):
        raise ValueError(f"{VARIABLE} is {said!r}: set it to on or off")
    return said == "on"


def sensor_status() -> dg.DefaultSensorStatus:
    """The same, for a sensor."""
    on = triggers_are_on()
    return dg.DefaultSensorStatus.RUNNING if on else dg.DefaultSensorStatus.STOPPED


def schedule_status() -> dg.DefaultScheduleStatus:
    """The same, for a schedule."""
    on = triggers_are_on()
    return dg.DefaultScheduleStatus.RUNNING if on else dg.DefaultScheduleStatus.STOPPED
