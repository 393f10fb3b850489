"""What a data source guarantees to its readers: correct data, and fresh data."""

import re
from datetime import timedelta
from typing import Any, Literal, Self

import dagster as dg
from dagster_shared.check import CheckError
from pydantic import Field, field_validator, model_validator

from tableau_pipeline.components.attributes.base import Attributes
from tableau_pipeline.components.attributes.zones import Zone
from tableau_pipeline.core.declaration import Reconcile, ReconcileBy

_SPAN = re.compile(r"(\d+) ?(m|h|d)")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class ReconcileAttributes(Attributes):
    """Compare the published data with the models."""

    by: ReconcileBy = Field(
        default="auto",
        description="`server`: the server counts the rows, by its VizQL Data Service (on Tableau "
        "Cloud, and on Server from 2025.1). `download`: the file is read back. `auto`: the server "
        "counts; if it cannot, or with `checksums`, the file is read back up to `max_mb`.",
    )
    max_mb: float = Field(
        default=100,
        gt=0,
        description="In megabytes of 10^6 bytes. Larger files are not downloaded. If the server "
        "cannot count either, the check reports that.",
    )
    checksums: bool = Field(
        default=False,
        description="Compare a checksum of each column, independent of the order of rows. By "
        "default only the number of rows is compared. The server counts the values of each column, "
        "and the different ones, instead.",
    )


def reconcile(attributes: ReconcileAttributes | Literal["never"]) -> Reconcile | None:
    """Convert the key `reconcile` to the core's `Reconcile`; None for `never`."""
    if attributes == "never":
        return None
    return Reconcile(int(attributes.max_mb * 1e6), attributes.checksums, attributes.by)


class FreshnessAttributes(Attributes):
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
