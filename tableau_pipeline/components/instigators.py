"""Find which schedules and sensors are on, by the environment or by a switch in the web UI."""

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import dagster as dg

from tableau_pipeline.dagster_internals import InstigatorStatus
from tableau_pipeline.errors import SettingError

DefaultStatus = TypeVar("DefaultStatus", dg.DefaultSensorStatus, dg.DefaultScheduleStatus)

# The variable that switches the triggers of a deployment on by default.
_VARIABLE = "PIPELINE_TRIGGERS"


def default_status(kind: type[DefaultStatus]) -> DefaultStatus:
    """Return RUNNING if PIPELINE_TRIGGERS is `on`; the default is `off`.

    A schedule or sensor starts with this status. A switch in the web UI overrides it.

    Raises:
        SettingError: the variable is neither `on` nor `off`.
    """
    value = os.environ.get(_VARIABLE) or "off"
    if value not in ("on", "off"):
        raise SettingError(f"{_VARIABLE} is {value!r}: set it to on or off")
    return kind["RUNNING" if value == "on" else "STOPPED"]


def switched_on(instance: dg.DagsterInstance, parts: Iterable[Any]) -> set[str]:
    """Return the names of the schedules and sensors that are on: in the web UI, or by default."""
    states = {state.instigator_name: state.status for state in instance.all_instigator_state()}
    on, by_default = InstigatorStatus.RUNNING, InstigatorStatus.DECLARED_IN_CODE
    return {
        part.name
        for part in parts
        if (status := states.get(part.name, by_default)) is on
        # Some kinds of definitions have no default status.
        or (status is by_default and getattr(part, "default_status", by_default).value == on.value)
    }
