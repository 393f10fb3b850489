"""The keys of a declared data source, as YAML writes them; every mistake names its key."""

from typing import Annotated, Any, Literal, Self

import dagster as dg
from pydantic import ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

NOT_YET = "is not supported yet; until then every refresh ships the table whole: refresh: replace"


class Attributes(dg.Model):
    """Nested keys: an unknown one is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Diff(Attributes):
    """Ship the rows that changed, found by comparing the old and the new snapshot."""

    key: list[str] = Field(min_length=1, description="Columns that identify a row.")
    changes: dict[str, Any] | None = Field(
        default=None, description="A change-data-capture feed that names the touched keys."
    )


class DiffRefresh(Attributes):
    """refresh: {diff: {key: [...]}}"""  # noqa: D415

    diff: Diff


class Append(Attributes):
    """Ship from the last cutoff on, inclusive."""

    cursor: str = Field(description="Column that only grows.")
    lookback: str | int | None = Field(default=None, description="How far late rows reach back.")


class AppendRefresh(Attributes):
    """refresh: {append: {cursor: ...}}"""  # noqa: D415

    append: Append


class Partitions(Attributes):
    """Ship the Dagster partitions that were materialized again."""

    column: str


class PartitionsRefresh(Attributes):
    """refresh: {partitions: {column: ...}}"""  # noqa: D415

    partitions: Partitions


_POLICIES = ("diff", "append", "partitions")


def _policy(value: Any) -> str | None:
    """Which of the policies a `refresh` means; None if none, or several."""
    if value == "replace":
        return "replace"
    names = _keys(value)
    return names[0] if len(names) == 1 and names[0] in _POLICIES else None


def _keys(value: Any) -> list[str]:
    """Of a mapping, or of what one became."""
    if isinstance(value, dict):
        return list(value)
    return list(type(value).model_fields) if isinstance(value, Attributes) else []


Refresh = Annotated[
    Annotated[Literal["replace"], Tag("replace")]
    | Annotated[DiffRefresh, Tag("diff")]
    | Annotated[AppendRefresh, Tag("append")]
    | Annotated[PartitionsRefresh, Tag("partitions")],
    Discriminator(_policy),
]


class Retain(Attributes):
    """A rolling window: rows older than `days` are not published."""

    column: str
    days: int = Field(gt=0)
    as_of: Literal["run", "max"] = "run"


class GuardAttributes(Attributes):
    """What must hold before a table is published."""

    min_rows: int = Field(default=1, ge=0, description="Fewer rows are refused.")
    max_shrink: float = Field(
        default=0.5, ge=0, le=1, description="The largest share of rows that may vanish at once."
    )


class TableAttributes(Attributes):
    """One table of the data source."""

    model: str | None = Field(
        default=None,
        description='Asset key of the model, "a/b" for two parts; default: the table\'s name.',
    )
    refresh: Refresh = Field(default="replace", description="How changes are shipped.")
    retain: Retain | None = Field(default=None, description="A rolling window over a date column.")
    guard: GuardAttributes = Field(default_factory=GuardAttributes)

    @field_validator("refresh", mode="before")
    @classmethod
    def _known_policy(cls, refresh: Any) -> Any:
        if _policy(refresh) is None:
            raise ValueError(
                "refresh is one of: replace; {diff: {key: [...]}}; {append: {cursor: ...}}; "
                f"{{partitions: {{column: ...}}}}; not {refresh!r}"
            )
        return refresh

    @field_validator("refresh")
    @classmethod
    def _implemented(cls, refresh: Any) -> Any:
        if refresh != "replace":
            raise ValueError(f"refresh: {_policy(refresh)} {NOT_YET}")
        return refresh

    @field_validator("retain")
    @classmethod
    def _retain_implemented(cls, retain: Retain | None) -> Retain | None:
        if retain is not None:
            raise ValueError("retain is not supported yet: filter the rows in the model")
        return retain


def _allow_bare_on(schema: dict[str, Any]) -> None:
    """YAML 1.1 reads the bare word `on` as true, also where it is a key: leave it to pydantic."""
    schema["additionalProperties"] = True
    schema["required"].remove("on")


class RelationshipAttributes(Attributes):
    """Many rows of `from` point at one row of `to`."""

    model_config = ConfigDict(json_schema_extra=_allow_bare_on)

    many: str = Field(alias="from", description="Table of the many side.")
    one: str = Field(alias="to", description="Table of the one side.")
    on: dict[str, str] = Field(
        min_length=1, description="Column of `from`: column of `to`, for each column of the key."
    )

    @model_validator(mode="before")
    @classmethod
    def _bare_on(cls, keys: Any) -> Any:
        if isinstance(keys, dict) and True in keys:
            return {"on" if key is True else key: value for key, value in keys.items()}
        return keys


class AfterTrigger(Attributes):
    """Refresh when upstream models are new: when any of them is, or when all are."""

    after: Literal["any", "all"]


class CronTrigger(Attributes):
    """Refresh at fixed times."""

    cron: str
    timezone: str = "UTC"

    @model_validator(mode="after")
    def _valid(self) -> Self:
        """Dagster's own check, but with the error where the mistake is."""
        try:
            dg.ScheduleDefinition(
                job_name="check", cron_schedule=self.cron, execution_timezone=self.timezone
            )
        except dg.DagsterInvalidDefinitionError as error:
            raise ValueError(str(error)) from error
        return self


def _trigger(value: Any) -> str | None:
    return next((name for name in ("after", "cron") if name in _keys(value)), None)


def known_trigger(value: Any) -> Any:
    """Refuse what is none of the triggers.

    Raises:
        ValueError: names them.
    """
    if value is not None and _trigger(value) is None:
        raise ValueError(
            f"trigger is one of: {{after: any}}; {{after: all}}; {{cron: ..., timezone: ...}}; "
            f"not {value!r}"
        )
    return value


Trigger = Annotated[
    Annotated[AfterTrigger, Tag("after")] | Annotated[CronTrigger, Tag("cron")],
    Discriminator(_trigger),
]
