"""The automation conditions of a data source."""

import os
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Literal

import dagster as dg

from tableau_pipeline.components.attributes import AfterTrigger, Trigger

RETRY_CRON = "*/30 * * * *"


def automation_condition(
    trigger: Trigger | None, models: Sequence[dg.AssetKey]
) -> dg.AutomationCondition | None:
    """Return the condition of a data source that follows its models; None for other triggers.

    It also retries a failed refresh every half hour.
    """
    if not isinstance(trigger, AfterTrigger):
        return None
    updated = dg.AutomationCondition.newly_updated()
    if trigger.after == "all":
        new = reduce(
            and_,
            (_since_request(dg.AutomationCondition.asset_matches(m, updated)) for m in models),
        )
    else:
        new = _since_request(dg.AutomationCondition.any_deps_match(updated))
    failed = dg.AutomationCondition.execution_failed() & dg.AutomationCondition.cron_tick_passed(
        RETRY_CRON
    )
    return (
        (new | failed).with_label("refresh after models")
        & ~dg.AutomationCondition.in_progress()
        & ~dg.AutomationCondition.any_deps_in_progress()
        # While a blocking check has failed or has not run, the new model stays remembered.
        & dg.AutomationCondition.all_deps_blocking_checks_passed()
    )


def follows_extract(trigger: Trigger | None) -> dg.AutomationCondition | None:
    """Return the condition of the published asset, which shares a step with its extract."""
    if not isinstance(trigger, AfterTrigger):
        return None
    requested = dg.AutomationCondition.will_be_requested()
    together = dg.AutomationCondition.any_deps_match(requested)
    return together.with_label("refresh together with the extract")


def _since_request(updated: dg.AutomationCondition) -> dg.AutomationCondition:
    """Remember an update until the next request.

    Only a request resets it, not a refresh, and the condition is not or-ed with others. Dagster
    does not know the time of a combined condition: it would forget a model that became new just
    after the request, and the requested refresh may have missed that model. After a refresh by hand
    this costs one extra refresh without changes.

    Unlike eager(), nothing waits for missing partitions: one day that never arrives must not block
    all.
    """
    return updated.since(dg.AutomationCondition.newly_requested())


# Whether the triggers of this deployment start switched on.


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
