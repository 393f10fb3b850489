"""What a data source promises to its readers: to be right, and to be fresh."""

import re
from datetime import timedelta
from typing import Any, Literal, Self

import dagster as dg
from dagster_shared.check import CheckError
from pydantic import Field, field_validator, model_validator

from tableau_pipeline.components.attributes.base import Attributes
from tableau_pipeline.components.attributes.zones import known_zone
from tableau_pipeline.core.declaration import Reconcile

_SPAN = re.compile(r"(\d+) ?(m|h|d)")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class ReconcileAttributes(Attributes):
    """Read back what was published, and compare it with the models."""

    max_mb: float = Field(
        default=100,
        gt=0,
        description="Larger files are not downloaded, and the check says so; in megabytes of 10^6 "
        "bytes.",
    )
    checksums: bool = Field(
        default=False,
        description="Compare the contents of each column, in any order of rows; otherwise the "
        "number of rows.",
    )


def reconcile(attributes: ReconcileAttributes | Literal["never"]) -> Reconcile | None:
    """The same, as a refresh wants it."""
    if attributes == "never":
        return None
    return Reconcile(int(attributes.max_mb * 1e6), attributes.checksums)


class FreshnessAttributes(Attributes):
    """When the data source has to be fresh; the web UI shows whether it is."""

    by: str | None = Field(default=None, description='Refreshed each day by this time, "07:00".')
    timezone: str = Field(default="UTC", description='Whose clock counts: "Europe/Paris".')
    since: str | None = Field(
        default=None,
        description='With `by`: the earliest time of day that counts; default: "00:00".',
    )
    within: str | None = Field(
        default=None, description='Refreshed within this time, always: "24h", "90m", "7d".'
    )

    @field_validator("by", "since", mode="before")
    @classmethod
    def _time(cls, value: Any) -> Any:
        # YAML 1.1 reads 07:00 without quotes as a number to the base of 60.
        if isinstance(value, int):
            value = f"{value // 60:02}:{value % 60:02}"
        if value is not None and not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", str(value)):
            raise ValueError(f'{value!r} is no time of day such as "07:00"')
        return value

    @field_validator("within")
    @classmethod
    def _span(cls, value: str | None) -> str | None:
        if value is not None and not _SPAN.fullmatch(value):
            raise ValueError(f"{value!r} is no span of time such as 24h, 90m or 7d")
        return value

    @field_validator("timezone")
    @classmethod
    def _exists(cls, timezone: str) -> str:
        return known_zone(timezone)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.by) == bool(self.within):
            raise ValueError('freshness is either {by: "07:00", timezone: ...} or {within: 24h}')
        try:
            self.policy()
        except (CheckError, OverflowError) as error:
            raise ValueError(f"freshness: {error}") from error
        return self

    def policy(self) -> dg.FreshnessPolicy:
        """The same, as Dagster wants it."""
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
    """From one time of day to the next time that it is another."""
    minutes = (end[0] * 60 + end[1]) - (start[0] * 60 + start[1])
    return timedelta(minutes=minutes if minutes > 0 else minutes + 24 * 60)
