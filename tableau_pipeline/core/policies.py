"""The policies of a table, which define the rows that a refresh replaces."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from tableau_pipeline.yaml_keys import Pairs, keyed

_SPAN = re.compile(r"\d+ (second|minute|hour|day|week|month|year)s?")


@keyed
class ReplaceAll:
    """Replace all rows."""


@keyed
class Feed:
    """A change-data-capture feed. It names the affected keys. The rows come from the model."""

    model: Annotated[str, Field(validation_alias="feed")] = Field(
        description="Asset key of the feed's model. Its newest snapshot contains the keys "
        "affected since the last refresh. A wrong key costs bytes only. If keys are missing, the "
        "snapshots are compared.",
    )
    columns: Pairs = Field(
        default=(),
        description="For each key column with another name in the feed: the name of the feed's "
        "column.",
    )


@keyed
class Diff:
    """Send the changed rows, which a comparison of the old and the new snapshot finds."""

    key: Annotated[
        tuple[str, ...],
        BeforeValidator(
            lambda key: (key,) if isinstance(key, str) else key, json_schema_input_type=Any
        ),
    ] = Field(
        min_length=1,
        description="Columns that identify a row, such as [a, b]. They must not be NULL.",
    )
    feed: Annotated[Feed | None, Field(validation_alias="changes")] = Field(
        default=None,
        description="A change-data-capture feed of the affected keys. Default: no feed; the "
        "snapshots are compared.",
    )


def is_span(lookback: str) -> bool:
    """Whether a lookback is a time span, such as "3 days"."""
    return bool(_SPAN.fullmatch(lookback))


def _lookback(lookback: str | int | None) -> str | int | None:
    if lookback is None or is_span(str(lookback)) or str(lookback).isdecimal():
        return lookback
    raise ValueError(
        f'"{lookback}" is not a lookback: write a whole number for a numeric cursor, or a span '
        'such as "3 days" or "12 hours", in seconds, minutes, hours, days, weeks, months or years'
    )


@keyed
class Append:
    """Send the rows with a cursor at or above the last published maximum."""

    cursor: str = Field(
        description="Column whose values grow with each new row. It must not be NULL."
    )
    lookback: Annotated[str | int | None, AfterValidator(_lookback)] = Field(
        default=None,
        description="How far below the last maximum to send rows again, because rows may be late "
        'or corrected: 1000 for a number, "3 days" for a date or timestamp.',
    )


@keyed
class Partitions:
    """Send the Dagster partitions that were materialized again."""

    column: str = Field(description="Column with the partition of a row. It must not be NULL.")


Policy = ReplaceAll | Diff | Append | Partitions


@keyed
class RefreshKey:
    """The key `refresh`, below which exactly one key is set."""

    diff: Diff | None = Field(default=None, description="Send the rows that differ.")
    append: Append | None = Field(
        default=None,
        description="Send the rows at or above the last published maximum of a column.",
    )
    partitions: Partitions | None = Field(
        default=None, description="Send the partitions that changed."
    )


def policy_of(value: Any) -> Any:
    """Convert the value of the key `refresh` to a policy, for a validator."""
    if isinstance(value, Policy):
        return value
    if value == "replace":
        return ReplaceAll()
    keys = list(value) if isinstance(value, dict) else []
    unknown = [str(key) for key in keys if key not in ("diff", "append", "partitions")]
    if unknown or len(keys) != 1:
        given = ", ".join(unknown) or ("several of them" if keys else value)
        raise ValueError(
            "refresh is one of: replace; {diff: {key: [...]}}; {append: {cursor: ...}}; "
            f"{{partitions: {{column: ...}}}}; not {given}"
        )
    form = RefreshKey(**value)
    return form.diff or form.append or form.partitions
