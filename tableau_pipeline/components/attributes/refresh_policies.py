"""How the changes of a table are shipped, as YAML says it."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator

from tableau_pipeline.components.attributes.base import Attributes, keys
from tableau_pipeline.core.policies import (
    Append,
    Diff,
    Feed,
    Partitions,
    Policy,
    Replace,
    is_lookback,
)


class ChangesAttributes(Attributes):
    """A change-data-capture feed: it names the touched keys, the rows come from the model."""

    feed: str = Field(
        description="Asset key of the model whose newest snapshot names the keys that were touched "
        "since the last refresh; too many or too few do no harm."
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="Key column of the table: column of the feed, where their names differ.",
    )

    def declared(self, key: list[str]) -> Feed:
        """The same, as a refresh wants it."""
        return Feed(self.feed, tuple((name, self.columns.get(name, name)) for name in key))


def _one_or_more(key: Any) -> Any:
    """`key: id` means `key: [id]`."""
    return [key] if isinstance(key, str) else key


class DiffAttributes(Attributes):
    """Ship the rows that changed, found by comparing the old and the new snapshot."""

    key: Annotated[list[str], BeforeValidator(_one_or_more, json_schema_input_type=Any)] = Field(
        min_length=1, description="Columns that identify a row, [a, b]; never NULL."
    )
    changes: ChangesAttributes | None = Field(
        default=None,
        description="A change-data-capture feed that names the touched keys; absent: snapshots are "
        "compared.",
    )

    def declared(self) -> Diff:
        """The same, as a refresh wants it."""
        return Diff(tuple(self.key), self.changes.declared(self.key) if self.changes else None)


class AppendAttributes(Attributes):
    """Ship the rows from the last published maximum on, inclusive."""

    cursor: str = Field(description="Column that is larger in later rows; never NULL.")
    lookback: str | int | None = Field(
        default=None,
        description="How far back rows are shipped again, for those that come late or are "
        'corrected: 1000 for a number, "3 days" for a date or a timestamp.',
    )

    @field_validator("lookback")
    @classmethod
    def _span(cls, lookback: str | int | None) -> str | int | None:
        text = str(lookback)
        # A template is filled in later, and looked at again.
        if lookback is not None and "{{" not in text and not is_lookback(text):
            raise ValueError(
                f'"{lookback}" is no lookback: write a whole number for a cursor that is a number, '
                'or a span such as "3 days" or "12 hours", in seconds, minutes, hours, days, '
                "weeks, months or years"
            )
        return lookback

    def declared(self) -> Append:
        """The same, as a refresh wants it."""
        return Append(self.cursor, self.lookback)


class PartitionsAttributes(Attributes):
    """Ship the Dagster partitions that were materialized again."""

    column: str = Field(description="Column that tells the partition of a row, never NULL.")

    def declared(self) -> Partitions:
        """The same, as a refresh wants it."""
        return Partitions(self.column)


class DiffRefresh(Attributes):
    """refresh: {diff: {key: [...]}}"""  # noqa: D415

    diff: DiffAttributes = Field(description="Ship the rows that differ.")


class AppendRefresh(Attributes):
    """refresh: {append: {cursor: ...}}"""  # noqa: D415

    append: AppendAttributes = Field(
        description="Ship the rows from the last published maximum on."
    )


class PartitionsRefresh(Attributes):
    """refresh: {partitions: {column: ...}}"""  # noqa: D415

    partitions: PartitionsAttributes = Field(description="Ship the partitions that changed.")


_POLICIES = ("diff", "append", "partitions")


def known_policy(refresh: Any) -> Any:
    """Refuse what is none of the policies.

    Raises:
        ValueError: names them.
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
    """Which of the policies a `refresh` means; None if none, or several."""
    if value == "replace":
        return "replace"
    names = keys(value)
    return names[0] if len(names) == 1 and names[0] in _POLICIES else None


Refresh = Annotated[
    Annotated[Literal["replace"], Tag("replace")]
    | Annotated[DiffRefresh, Tag("diff")]
    | Annotated[AppendRefresh, Tag("append")]
    | Annotated[PartitionsRefresh, Tag("partitions")],
    Discriminator(_policy),
]


def policy(refresh: Refresh) -> Policy:
    """The same, as a refresh wants it."""
    match refresh:
        case DiffRefresh(diff=diff):
            return diff.declared()
        case AppendRefresh(append=append):
            return append.declared()
        case PartitionsRefresh(partitions=partitions):
            return partitions.declared()
        case _:
            return Replace()
