"""What refreshes data sources automatically, and by when they have to be refreshed."""

import os
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import reduce
from operator import and_
from typing import Annotated, Any, Literal, Self, TypeVar

import dagster as dg
from dagster._core.definitions.freshness import CronFreshnessPolicy, TimeWindowFreshnessPolicy
from dagster._utils.schedules import get_latest_completed_cron_tick
from dagster_shared.check import CheckError
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    field_validator,
    model_validator,
)

from tableau_pipeline.keys import Zone, keyed

Status = TypeVar("Status", dg.DefaultSensorStatus, dg.DefaultScheduleStatus)

RETRY_CRON = "*/30 * * * *"
# Whether the triggers of this deployment start switched on.
VARIABLE = "PIPELINE_TRIGGERS"
_SPAN = re.compile(r"(\d+) ?(m|h|d)")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@keyed
class AfterTrigger:
    """Refresh when any upstream model is new, or when all are."""

    after: Literal["any", "all"] = Field(
        description="any: as soon as one model is new. all: once every model is new, feeds "
        "included."
    )


def _schedule(cron: str) -> str:
    """Return the cron expression itself if it is one.

    Raises:
        ValueError: it is none.
    """
    try:
        # Dagster's own check. Its message names this throwaway schedule, so it is not passed on.
        dg.ScheduleDefinition(job_name="check", cron_schedule=cron)
    except dg.DagsterInvalidDefinitionError:
        raise ValueError(
            f'"{cron}" is not a cron schedule: write minute, hour, day of the month, month and '
            'day of the week, as in "0 6 * * *" or "*/30 8-18 * * MON-FRI", or @daily'
        ) from None
    return cron


Cron = Annotated[str, AfterValidator(_schedule)]


@keyed
class CronTrigger:
    """Refresh at fixed times."""

    cron: Cron = Field(description='A cron expression, as in "0 6 * * *".')
    timezone: Zone = Field(
        default="UTC", description='Time zone of the cron expression: "Europe/Paris".'
    )
    upstream: bool = Field(
        default=False,
        description="Run its models first, and all that they are made of in this code location. "
        "Not for partitioned models.",
    )


@keyed
class DbtTrigger:
    """Refresh the data source and its Spark models after a dbt that runs outside Dagster."""

    dbt: str = Field(
        min_length=1,
        description="dbt's run_results.json: a path, or the URL of an object store, such as "
        "s3://lake/target/run_results.json.",
    )
    models: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Names or unique ids of the dbt models that feed the data source. It is "
        "refreshed if an invocation built one of them, and neither one of them nor a test on them "
        "failed. Default: all models of the dbt project.",
    )


_CLASSES = {"after": AfterTrigger, "cron": CronTrigger, "dbt": DbtTrigger}


def _trigger(value: Any) -> Any:
    """Read a trigger by the class that its one key names; a union would report all classes."""
    if isinstance(value, AfterTrigger | CronTrigger | DbtTrigger):
        return value
    names = [name for name in _CLASSES if name in value] if isinstance(value, dict) else []
    if len(names) > 1:
        raise ValueError(
            f"{' and '.join(f'`{name}`' for name in names)} are {len(names)} triggers; a data "
            "source has one, or it would be refreshed twice: keep one of them"
        )
    if not names:
        raise ValueError(
            'trigger is one of: {after: any}; {after: all}; {cron: "0 6 * * *", timezone: '
            "Europe/Paris}; {dbt: .../run_results.json, models: [...]}"
        )
    return TypeAdapter(_CLASSES[names[0]]).validate_python(value)


Trigger = Annotated[
    AfterTrigger | CronTrigger | DbtTrigger,
    BeforeValidator(_trigger, json_schema_input_type=AfterTrigger | CronTrigger | DbtTrigger),
]


@keyed
class Freshness:
    """The deadline of the data source. The web UI shows whether it is met."""

    by: str | None = Field(
        default=None,
        description='The data source must be refreshed each day by this time, "07:00".',
    )
    timezone: Zone = Field(
        default="UTC", description='Time zone of `by` and `since`: "Europe/Paris".'
    )
    since: str | None = Field(
        default=None,
        description="With `by`: a refresh before this time of day does not count. Default: "
        '"00:00".',
    )
    within: str | None = Field(
        default=None, description='Maximum age of the last refresh: "24h", "90m", "7d".'
    )

    @field_validator("by", "since", mode="before")
    @classmethod
    def _time(cls, value: Any) -> Any:
        # YAML 1.1 reads an unquoted 07:00 as a number in base 60.
        if isinstance(value, int):
            value = f"{value // 60:02}:{value % 60:02}"
        if value is not None and not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", str(value)):
            raise ValueError(f'{value!r} is not a time of day: write it as "07:00"')
        return value

    @field_validator("within")
    @classmethod
    def _span(cls, value: str | None) -> str | None:
        if value is not None and not _SPAN.fullmatch(value):
            raise ValueError(f"{value!r} is not a time span: write it as 24h, 90m or 7d")
        return value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.by) == bool(self.within):
            raise ValueError('freshness needs either {by: "07:00", timezone: ...} or {within: 24h}')
        try:
            # Dagster has limits of its own; building the policy reports them with file and line.
            self.policy()
        except (CheckError, OverflowError) as error:
            raise ValueError(f"freshness: {error}") from error
        return self

    def policy(self) -> dg.FreshnessPolicy:
        """Return the Dagster freshness policy of these keys."""
        if self.within:
            number, unit = self.within[:-1].strip(), self.within[-1]
            return dg.FreshnessPolicy.time_window(
                fail_window=timedelta(**{_UNITS[unit]: int(number)})
            )
        hour, minute = map(int, str(self.by).split(":"))
        earliest = map(int, (self.since or "00:00").split(":"))
        return dg.FreshnessPolicy.cron(
            deadline_cron=f"{minute} {hour} * * *",
            lower_bound_delta=_between(tuple(earliest), (hour, minute)),
            timezone=self.timezone,
        )


def _between(start: tuple[int, ...], end: tuple[int, ...]) -> timedelta:
    """Return the time from one time of day to the next occurrence of another."""
    minutes = (end[0] * 60 + end[1]) - (start[0] * 60 + start[1])
    return timedelta(minutes=minutes if minutes > 0 else minutes + 24 * 60)


def late(policy: dg.FreshnessPolicy | None, refreshed: datetime, now: datetime) -> str | None:
    """Why a data source is late, by the rules of Dagster's web UI; None if it is not."""
    match policy:
        case TimeWindowFreshnessPolicy():
            window = policy.fail_window.to_timedelta()
            if now - refreshed >= window:
                hours = window.total_seconds() / 3600
                return f"freshness: its last refresh is older than {hours:g} h"
        case CronFreshnessPolicy():
            zone = policy.timezone
            due = get_latest_completed_cron_tick(policy.deadline_cron, now, zone)
            if refreshed < due - policy.lower_bound_delta:
                return f"freshness: it was due at {due:%Y-%m-%d %H:%M} ({zone})"
    return None


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


def default_status(kind: type[Status]) -> Status:
    """Return RUNNING if PIPELINE_TRIGGERS is `on`; the default is `off`.

    A schedule or sensor starts with this status. A switch in the web UI overrides it.

    Raises:
        ValueError: the variable has another value.
    """
    value = os.environ.get(VARIABLE) or "off"
    if value not in ("on", "off"):
        raise ValueError(f"{VARIABLE} is {value!r}: set it to on or off")
    return kind["RUNNING" if value == "on" else "STOPPED"]
