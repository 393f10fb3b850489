"""Whether the triggers of this deployment start switched on."""

import os
from typing import Literal

import dagster as dg

VARIABLE = "PIPELINE_TRIGGERS"


def _status() -> Literal["RUNNING", "STOPPED"]:
    """Return RUNNING if PIPELINE_TRIGGERS is `on`; the default is `off`.

    A schedule or sensor starts with this status. A switch in the web UI overrides it.

    Raises:
        ValueError: the variable has another value.
    """
    value = os.environ.get(VARIABLE) or "off"
    if value not in ("on", "off"):
        raise ValueError(f"{VARIABLE} is {value!r}: set it to on or off")
    return "RUNNING" if value == "on" else "STOPPED"


def sensor_status() -> dg.DefaultSensorStatus:
    """Return the default status of a sensor."""
    return dg.DefaultSensorStatus[_status()]


def schedule_status() -> dg.DefaultScheduleStatus:
    """Return the default status of a schedule."""
    return dg.DefaultScheduleStatus[_status()]
