"""The deadlines of data sources, and the check of the age of their models."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import dagster as dg
from pydantic import Field, field_validator, model_validator

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.journal_store import StoredJournal
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.dagster_internals import (
    CheckError,
    CronFreshnessPolicy,
    TimeWindowFreshnessPolicy,
    get_latest_completed_cron_tick,
)
from tableau_pipeline.yaml_keys import Zone, keyed

DATA_AGE = "data_age"
_HOUR = 60
_SPAN = re.compile(r"(\d+) ?(m|h|d)")
_DAY = 24 * 60
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@keyed
class Freshness:
    """The deadline of a data source and its models. The web UI shows late data sources."""

    by: str | None = Field(
        default=None,
        description='A refresh is due each day between midnight and this time, "07:00".',
    )
    timezone: Zone = Field(default="UTC", description='Time zone of `by`: "Europe/Paris".')
    within: str | None = Field(
        default=None, description='Maximum age of the last refresh: "24h", "90m", "7d".'
    )
    models: tuple[str, ...] | None = Field(
        default=None,
        description="Models whose published version must meet the same limit. Default: all; [] for "
        "none.",
    )

    @field_validator("by", mode="before")
    @classmethod
    def _valid_time(cls, value: Any) -> Any:
        # YAML 1.1 reads an unquoted 07:00 as a number in base 60: 420. Refuse numbers below 60,
        # because a plain 7, for example, is ambiguous.
        if isinstance(value, int) and value >= _HOUR:
            value = f"{value // 60:02}:{value % 60:02}"
        if value is not None and not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", str(value)):
            raise ValueError(f'{value!r} is not a time of day: write it as "07:00"')
        return value

    @field_validator("within")
    @classmethod
    def _valid_span(cls, value: str | None) -> str | None:
        if value is not None and not _SPAN.fullmatch(value):
            raise ValueError(f"{value!r} is not a time span: write it as 24h, 90m or 7d")
        return value

    @model_validator(mode="after")
    def _exactly_one_limit(self) -> Self:
        if bool(self.by) == bool(self.within):
            raise ValueError('freshness needs either {by: "07:00", timezone: ...} or {within: 24h}')
        try:
            # Let Dagster check its own limits here, where the error message gets a file and a line.
            self.policy()
        except (CheckError, OverflowError) as error:
            raise ValueError(f"freshness: {error}") from error
        return self

    def policy(self) -> dg.FreshnessPolicy:
        """Return the equivalent freshness policy of Dagster."""
        if self.within:
            number, unit = self.within[:-1].strip(), self.within[-1]
            return dg.FreshnessPolicy.time_window(
                fail_window=timedelta(**{_UNITS[unit]: int(number)})
            )
        hour, minute = map(int, str(self.by).split(":"))
        return dg.FreshnessPolicy.cron(
            deadline_cron=f"{minute} {hour} * * *",
            # The time in which a refresh meets the deadline begins at midnight. If the deadline is
            # midnight, this time is the whole day.
            lower_bound_delta=timedelta(minutes=hour * 60 + minute or _DAY),
            timezone=self.timezone,
        )

    def late(self, refreshed: datetime, now: datetime) -> str | None:
        """Return why a data source is late, by the web UI's rules; None if it is not."""
        match self.policy():
            case TimeWindowFreshnessPolicy() as policy:
                window = policy.fail_window.to_timedelta()
                if now - refreshed >= window:
                    hours = window.total_seconds() / 3600
                    return f"freshness: its last refresh is older than {hours:g} h"
            case CronFreshnessPolicy() as policy:
                zone = policy.timezone
                due = get_latest_completed_cron_tick(policy.deadline_cron, now, zone)
                if refreshed < due - policy.lower_bound_delta:
                    return f"freshness: it was due at {due:%Y-%m-%d %H:%M} ({zone})"
        return None


def data_age(
    declaration: Declaration, freshness: Freshness, snapshots: Snapshots, journal: StoredJournal
) -> dg.AssetCheckResult:
    """Check whether the published versions of the models are as fresh as declared.

    The check only warns, and stops no refresh. If the data source declares `quality_warning`,
    analysts see the first line of the check's description in Tableau.
    """
    problems, hours, now = [], {}, datetime.now(UTC)
    counted = declaration.models if freshness.models is None else freshness.models
    # Read the versions from the checkpoint, which records what is published: dry runs and refreshes
    # of metadata alone publish no new versions.
    published = journal.history().checkpoint
    for model, number in dict(published.versions if published else ()).items():
        version = snapshots.version(model, number) if model in counted else None
        if version is None:
            continue
        created = version.created_at
        hours[model] = round((now - created).total_seconds() / 3600, 1)
        if freshness.late(created, now):
            when = f"{created:%Y-%m-%d %H:%M} UTC"
            problems.append(f'the published version of the model "{model}" is of {when}')
    old = f"Older than freshness allows: {'; '.join(problems)}."
    remedy = "Run these models, or see why their sources have nothing new"
    return dg.AssetCheckResult(
        asset_key=dg.AssetKey.from_user_string(declaration.key),
        check_name=DATA_AGE,
        passed=not problems,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{old}\n{remedy}" if problems else None,
        metadata={f"age in hours/{model}": age for model, age in hours.items()},
    )
