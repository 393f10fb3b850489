"""The YAML keys of a table and of a relationship. Every error names its key."""

import re
from datetime import timedelta
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import dagster as dg
from dagster_shared.check import CheckError
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from tableau_pipeline.components.lake_tables import LakeAttributes
from tableau_pipeline.components.mistakes import Attributes, guess, keys, mistake
from tableau_pipeline.core.declaration import (
    Append,
    Diff,
    Feed,
    Guard,
    Partitions,
    Policy,
    Reconcile,
    ReconcileBy,
    Replace,
    Retain,
    Table,
    is_span,
)
from tableau_pipeline.extracts.checks import spark_name
from tableau_pipeline.hyper.tables import Column

# The refresh policies of a table: which rows a refresh sends.


class ChangesAttributes(Attributes):
    """A change-data-capture feed. It names the affected keys; the rows come from the model."""

    feed: str = Field(
        description="Asset key of the model whose newest snapshot holds the keys that were "
        "affected since the last refresh. Too many or too few keys do no harm."
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="Where their names differ, key column of the table: column of the feed.",
    )


def _one_or_more(key: Any) -> Any:
    """Accept `key: id` as `key: [id]`."""
    return [key] if isinstance(key, str) else key


class DiffAttributes(Attributes):
    """Send the rows that changed, found by comparing the old and the new snapshot."""

    key: Annotated[list[str], BeforeValidator(_one_or_more, json_schema_input_type=Any)] = Field(
        min_length=1, description="Columns that identify a row, [a, b]. They must not be NULL."
    )
    changes: ChangesAttributes | None = Field(
        default=None,
        description="A change-data-capture feed that names the affected keys. Default: none, the "
        "snapshots are compared.",
    )


class AppendAttributes(Attributes):
    """Send the rows from the last published maximum of the cursor on, inclusive."""

    cursor: str = Field(
        description="Column whose values grow with each new row. It must not be NULL."
    )
    lookback: str | int | None = Field(
        default=None,
        description="How far before the last maximum rows are sent again, for late or corrected "
        'rows: 1000 for a number, "3 days" for a date or a timestamp.',
    )

    @field_validator("lookback")
    @classmethod
    def _span(cls, lookback: str | int | None) -> str | int | None:
        text = str(lookback)
        # A template is validated again after Dagster has filled it in.
        known = lookback is None or is_span(text) or text.isdecimal()
        if not known and "{{" not in text:
            raise ValueError(
                f'"{lookback}" is not a lookback: write a whole number for a numeric cursor, or a '
                'span such as "3 days" or "12 hours", in seconds, minutes, hours, days, '
                "weeks, months or years"
            )
        return lookback


class PartitionsAttributes(Attributes):
    """Send the Dagster partitions that were materialized again."""

    column: str = Field(
        description="Column that holds the partition of a row. It must not be NULL."
    )


class DiffRefresh(Attributes):
    """refresh: {diff: {key: [...]}}"""  # noqa: D415

    diff: DiffAttributes = Field(description="Send the rows that differ.")


class AppendRefresh(Attributes):
    """refresh: {append: {cursor: ...}}"""  # noqa: D415

    append: AppendAttributes = Field(
        description="Send the rows from the last published maximum on."
    )


class PartitionsRefresh(Attributes):
    """refresh: {partitions: {column: ...}}"""  # noqa: D415

    partitions: PartitionsAttributes = Field(description="Send the partitions that changed.")


_POLICIES = ("diff", "append", "partitions")


def _validate(refresh: Any) -> Any:
    """Return the value if it is one of the policies.

    Raises:
        ValueError: it is not. The message lists the policies.
    """
    if _policy(refresh) is None:
        raise ValueError(
            "refresh is one of: replace; {diff: {key: [...]}}; {append: {cursor: ...}}; "
            f"{{partitions: {{column: ...}}}}{_not_these(refresh)}"
        )
    return refresh


def _not_these(refresh: Any) -> str:
    names = keys(refresh) or [str(refresh)]
    wrong = [name for name in names if name not in _POLICIES]
    return f"; not {', '.join(wrong)}" if wrong else "; not several of them"


def _policy(value: Any) -> str | None:
    """Return the name of the policy that a `refresh` selects; None if none or several."""
    if value == "replace":
        return "replace"
    names = keys(value)
    return names[0] if len(names) == 1 and names[0] in _POLICIES else None


Refresh = Annotated[
    Annotated[Literal["replace"], Tag("replace")]
    | Annotated[DiffRefresh, Tag("diff")]
    | Annotated[AppendRefresh, Tag("append")]
    | Annotated[PartitionsRefresh, Tag("partitions")],
    # A plain union would report the errors of every member, and not only of the one that is meant.
    Discriminator(_policy),
    BeforeValidator(_validate),
]


def policy(refresh: Refresh) -> Policy:
    """Convert the key `refresh` to the core's policy."""
    match refresh:
        case DiffRefresh(diff=DiffAttributes(key=key, changes=None)):
            return Diff(tuple(key))
        case DiffRefresh(diff=DiffAttributes(key=key, changes=ChangesAttributes() as changes)):
            columns = tuple((name, changes.columns.get(name, name)) for name in key)
            return Diff(tuple(key), Feed(changes.feed, columns))
        case AppendRefresh(append=append):
            return Append(append.cursor, append.lookback)
        case PartitionsRefresh(partitions=partitions):
            return Partitions(partitions.column)
        case _:
            return Replace()


class GuardAttributes(Attributes):
    """The conditions that a table must meet before it is published."""

    min_rows: int = Field(
        default=1, ge=0, description="The refresh is refused if the table has fewer rows."
    )
    max_shrink: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="The largest share of the published rows that one refresh may remove.",
    )


class RetainAttributes(Attributes):
    """A rolling window: rows older than `days` are not published."""

    column: str = Field(description="A date or timestamp column. Rows where it is NULL are kept.")
    days: int = Field(gt=0, description="Rows older than this many days are not published.")
    as_of: Literal["run", "max"] = Field(
        default="run",
        description="Count the days from today (UTC), or from the latest value in the model.",
    )


class TableAttributes(Attributes):
    """One table of the data source."""

    model: str | None = Field(
        default=None,
        description='Asset key of the model, "a/b" for two parts. Default: the table\'s name.',
    )
    source: LakeAttributes | None = Field(
        default=None,
        description="A table of a lake that is the model, read where it is: {delta: /lake/orders} "
        "or {iceberg: {catalog: prod, table: db.orders}}. Default: an asset that Spark writes is "
        "the model.",
    )
    refresh: Refresh = Field(
        default="replace",
        description="Which rows a refresh sends. replace: the whole table. {diff: {key: [...]}}: "
        "the rows that differ. {append: {cursor: ...}}: the rows from the last published one on. "
        "{partitions: {column: ...}}: the partitions that changed.",
    )
    retain: RetainAttributes | None = Field(
        default=None, description="A rolling window. Older rows are not published."
    )
    guard: GuardAttributes = Field(
        default_factory=GuardAttributes,
        description="The conditions that the table must meet before it is published.",
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="The contract: the model must have exactly these columns, by name and Spark "
        "type. Default: any columns.",
    )

    @model_validator(mode="after")
    def _no_partitions_of_a_lake(self) -> Self:
        if self.source and isinstance(self.refresh, PartitionsRefresh):
            raise mistake(
                ("refresh",),
                "partitions",
                "a table of a lake has no Dagster partitions: use {diff: {key: [...]}}, which "
                "compares only the files that changed",
            )
        return self

    def to_domain(self, name: str) -> Table:
        """Convert these keys to the core's `Table` with this name."""
        return Table(
            name=name,
            model=self.model or name,
            guard=Guard(self.guard.min_rows, self.guard.max_shrink),
            policy=policy(self.refresh),
            retain=Retain(**self.retain.model_dump()) if self.retain else None,
            columns=tuple(Column(name, spark_name(type_)) for name, type_ in self.columns.items()),
            source=self.source.to_domain() if self.source else None,
        )


def _allow_bare_on(schema: dict[str, Any]) -> None:
    """Make the schema accept a bare `on`, which YAML 1.1 reads as true; pydantic checks it."""
    schema["additionalProperties"] = True
    schema["required"].remove("on")


class RelationshipAttributes(Attributes):
    """A many-to-one relationship: many rows of `from` refer to one row of `to`."""

    model_config = ConfigDict(json_schema_extra=_allow_bare_on)

    many: str = Field(alias="from", description="Table of the many side.")
    one: str = Field(alias="to", description="Table of the one side.")
    on: dict[str, str] = Field(
        min_length=1, description="For each column of the key, column of `from`: column of `to`."
    )

    @model_validator(mode="before")
    @classmethod
    def _bare_on(cls, keys: Any) -> Any:
        if isinstance(keys, dict) and True in keys:
            return {"on" if key is True else key: value for key, value in keys.items()}
        return keys


# Time zones by their names.


def _known(zone: str) -> str:
    """Return the name itself if such a time zone exists.

    Raises:
        ValueError: there is no such zone.
    """
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        meant = guess(zone, available_timezones())
        raise ValueError(
            f'"{zone}" is not a time zone: {meant}Write it as "Europe/Paris", or UTC'
        ) from None
    return zone


Zone = Annotated[str, AfterValidator(_known)]


# What a data source guarantees to its readers: correct data, and fresh data.


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


# The key `timestamps`: `utc`, `with_time_zone` or `{zone: ...}`.


_WORDS = ("utc", "with_time_zone")


class ZoneAttributes(Attributes):
    """Show instants as the wall clock time of a zone."""

    zone: Zone = Field(description='Name of the time zone: "Europe/Paris".')


def _validate_timestamps(value: Any) -> Any:
    """Return the value if it is one of the ways to publish an instant.

    Raises:
        ValueError: it is not. The message lists them.
    """
    if _timestamps(value) is None:
        raise ValueError(
            f"timestamps is one of: {', '.join(_WORDS)}, {{zone: Europe/Paris}}; not {value!r}"
        )
    return value


def _timestamps(value: Any) -> str | None:
    if isinstance(value, str):
        return "word" if value in _WORDS else None
    return "zone" if keys(value) == ["zone"] else None


Timestamps = Annotated[
    Annotated[Literal["utc", "with_time_zone"], Tag("word")]
    | Annotated[ZoneAttributes, Tag("zone")],
    Discriminator(_timestamps),
    BeforeValidator(_validate_timestamps),
]


def clock(timestamps: Timestamps) -> Literal["utc", "with_time_zone"] | ZoneInfo:
    """Convert the key `timestamps` to the core's value, with a `ZoneInfo` for a zone."""
    return ZoneInfo(timestamps.zone) if isinstance(timestamps, ZoneAttributes) else timestamps


# The triggers that refresh a data source automatically.


class AfterTrigger(Attributes):
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


class CronTrigger(Attributes):
    """Refresh at fixed times."""

    cron: Cron = Field(description='A cron expression, as in "0 6 * * *".')
    timezone: Zone = Field(
        default="UTC", description='Time zone of the cron expression: "Europe/Paris".'
    )


class DbtTrigger(Attributes):
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


_EXAMPLES = {
    "after": "{after: any}; {after: all}",
    "cron": '{cron: "0 6 * * *", timezone: Europe/Paris}',
    "dbt": "{dbt: .../run_results.json, models: [...]}",
}


def _named(value: Any) -> list[str]:
    return [name for name in _EXAMPLES if name in keys(value)]


def _trigger(value: Any) -> str | None:
    """Return the name of the trigger that a value selects; None if none or several."""
    names = _named(value)
    return names[0] if len(names) == 1 else None


def _validate_trigger(value: Any) -> Any:
    """Return the value if it is exactly one of the triggers.

    Raises:
        ValueError: it is none of them, or several. The message lists them.
    """
    if _trigger(value):
        return value
    if names := _named(value):
        raise ValueError(
            f"{' and '.join(f'`{name}`' for name in names)} are {len(names)} triggers; a data "
            "source has one, or it would be refreshed twice: keep one of them"
        )
    raise ValueError(f"trigger is one of: {'; '.join(_EXAMPLES.values())}")


Trigger = Annotated[
    Annotated[AfterTrigger, Tag("after")]
    | Annotated[CronTrigger, Tag("cron")]
    | Annotated[DbtTrigger, Tag("dbt")],
    Discriminator(_trigger),
    BeforeValidator(_validate_trigger),
]
