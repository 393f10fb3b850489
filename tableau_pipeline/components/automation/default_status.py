"""Whether the triggers of this deployment start switched on."""

import os

import dagster as dg

VARIABLE = "PIPELINE_TRIGGERS"


def triggers_are_on() -> bool:
    """Whether PIPELINE_TRIGGERS is `on`; the default is `off`.

    A schedule or sensor starts with this status. A switch in the web UI overrides it.

    Raises:
        ValueError: the variable has another value.
    """
    value = os.environ.get(VARIABLE) or "off"
    if value not in ("on", "off"):
        raise ValueError(f"{VARIABLE} is {value!r}: set it to on or off")
    return value == "on"


def sensor_status() -> dg.DefaultSensorStatus:
    """Return the default status of a sensor."""
    on = triggers_are_on()
    return dg.DefaultSensorStatus.RUNNING if on else dg.DefaultSensorStatus.STOPPED


def schedule_status() -> dg.DefaultScheduleStatus:
    """Return the default status of a schedule."""
    on = triggers_are_on()
    return dg.DefaultScheduleStatus.RUNNING if on else dg.DefaultScheduleStatus.STOPPED
