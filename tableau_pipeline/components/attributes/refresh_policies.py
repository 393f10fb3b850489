"""The refresh policies of a table: which rows a refresh sends."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator

from tableau_pipeline.components.attributes.base import Attributes, keys
from tableau_pipeline.core.policies import Append, Diff, Feed, Partitions, Policy, Replace, is_span


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
