"""Triggers, which start the refreshes of a data source automatically."""

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

from tableau_pipeline.components.dbt import DbtTrigger
from tableau_pipeline.dagster_internals import is_valid_cron_schedule
from tableau_pipeline.yaml_keys import Zone, keyed

RETRY_CRON = "*/30 * * * *"


# The numbers of minutes that divide an hour, and the numbers of hours that divide a day.
_PARTS = {"m": (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30), "h": (1, 2, 3, 4, 6, 8, 12)}


def _check_every(text: str) -> str:
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or int(number) not in _PARTS.get(unit, ()):
        minutes, hours = (", ".join(map(str, parts)) for parts in _PARTS.values())
        raise ValueError(
            f"every: {text} does not divide an hour or a day: write minutes ({minutes}) as in 15m, "
            f"or hours ({hours}) as in 2h; for fixed times, use trigger: {{cron: ...}}"
        )
    return text


Every = Annotated[str, AfterValidator(_check_every)]


def _ticks(every: str) -> str:
    """Return the cron expression of a time span such as "15m" or "2h"."""
    number, unit = every[:-1], every[-1]
    return f"*/{number} * * * *" if unit == "m" else f"0 */{number} * * *"


@keyed
class AfterTrigger:
    """Refresh when any upstream model is new, or when all upstream models are new."""

    after: Literal["any", "all"] = Field(
        description="any: refresh as soon as one model is new. all: refresh once all models, "
        "including feeds, are new. With `every` alone: any."
    )
    every: Every | None = Field(
        default=None,
        description="Refresh at most once in each interval, such as each quarter of an hour (15m) "
        "or every two hours (2h) of the day.",
    )


def _check_cron(cron: str) -> str:
    if not is_valid_cron_schedule(cron):
        raise ValueError(
            f'"{cron}" is not a cron schedule: write minute, hour, day of the month, month and '
            'day of the week, as in "0 6 * * *" or "*/30 8-18 * * MON-FRI", or @daily'
        )
    return cron


Cron = Annotated[str, AfterValidator(_check_cron)]


@keyed
class CronTrigger:
    """Refresh at fixed times."""

    cron: Cron = Field(description='A cron expression, as in "0 6 * * *".')
    timezone: Zone = Field(
        default="UTC", description='Time zone of the cron expression, such as "Europe/Paris".'
    )
    upstream: bool = Field(
        default=False,
        description="First run all upstream assets in this code location. Not for partitioned "
        "models.",
    )


_CLASSES = {
    "after": AfterTrigger,
    "every": AfterTrigger,
    "cron": CronTrigger,
    "dbt": DbtTrigger,
}


def _read_trigger(value: Any) -> Any:
    """Read a trigger as the class that its key names.

    Validation as a union would report the errors of all classes.
    """
    if isinstance(value, AfterTrigger | CronTrigger | DbtTrigger):
        return value
    names = [name for name in _CLASSES if name in value] if isinstance(value, dict) else []
    if (several := len({_CLASSES[name] for name in names})) > 1:
        raise ValueError(
            f"{' and '.join(f'`{name}`' for name in names)} are {several} triggers; a data "
            "source has one, or it would be refreshed twice: keep one of them"
        )
    if not names:
        raise ValueError(
            'trigger is one of: {after: any}; {after: all}; {every: 15m}; {cron: "0 6 * * *", '
            "timezone: Europe/Paris}; {dbt: .../run_results.json, models: [...]}"
        )
    if names == ["every"]:
        value = {"after": "any", **value}
    return TypeAdapter(_CLASSES[names[0]]).validate_python(value)


Trigger = Annotated[
    AfterTrigger | CronTrigger | DbtTrigger,
    BeforeValidator(_read_trigger, json_schema_input_type=AfterTrigger | CronTrigger | DbtTrigger),
]


def automation_conditions(
    trigger: Trigger | None, models: Sequence[dg.AssetKey]
) -> tuple[dg.AutomationCondition | None, dg.AutomationCondition | None]:
    """Return the conditions of the extract and of the published asset, which share a step.

    Without an `AfterTrigger`, both are None. The conditions request a refresh when models are new,
    and retry a failed refresh every half hour.
    """
    if not isinstance(trigger, AfterTrigger):
        return None, None
    is_, updated = dg.AutomationCondition, dg.AutomationCondition.newly_updated()
    # Dagster remembers the update of each model until Dagster requests a refresh. A refresh by hand
    # does not clear this memory, so Dagster requests another refresh, which finds no changes. Do
    # not combine newly_updated() or newly_requested() with other conditions by "|": Dagster does
    # not know when a combined condition became true. So Dagster would forget a model that became
    # new just after the request, although the requested refresh may have missed this model. Unlike
    # eager(), do not wait for missing partitions: a day that never arrives must not block all
    # refreshes.
    updates = [is_.asset_matches(model, updated) for model in models]
    events = updates if trigger.after == "all" else [is_.any_deps_match(updated)]
    if trigger.every:
        # Dagster also remembers a tick of the schedule until the next request. So if a model is
        # running at the tick, a refresh still follows later.
        events = [*events, is_.cron_tick_passed(_ticks(trigger.every))]
    new = reduce(and_, (condition.since(is_.newly_requested()) for condition in events))
    failed = is_.execution_failed() & is_.cron_tick_passed(RETRY_CRON)
    extract = (
        (new | failed).with_label("refresh after models")
        & ~is_.in_progress()
        & ~is_.any_deps_in_progress()
        # Wait until all blocking checks have passed. Meanwhile, Dagster remembers the new model.
        & is_.all_deps_blocking_checks_passed()
    )
    together = is_.any_deps_match(is_.will_be_requested())
    return extract, together.with_label("refresh together with the extract")
