"""Refresh policies: which rows of a table are sent, and which are kept."""

import re
from dataclasses import dataclass
from typing import Literal

_SPAN = re.compile(r"\d+ (second|minute|hour|day|week|month|year)s?")


@dataclass(frozen=True, slots=True)
class Replace:
    """Send the whole table."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A change-data-capture feed: another model, whose rows name the affected keys.

    The feed only names keys. The rows that are sent come from the table's model.

    Attributes:
        model: the asset key of the feed.
        columns: pairs (key column of the table, column of the feed).
    """

    model: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """Send the rows that changed; `key` identifies a row."""

    key: tuple[str, ...]
    feed: Feed | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """Send the rows whose `cursor` is at least the last published maximum minus `lookback`.

    Attributes:
        lookback: how late rows may arrive: a number for a numeric cursor, a span such as "3
            days" for a date or a timestamp.
    """

    cursor: str
    lookback: int | str | None = None


@dataclass(frozen=True, slots=True)
class Partitions:
    """Send the partitions that were materialized again; `column` holds the partition of a row."""

    column: str


Policy = Replace | Diff | Append | Partitions


@dataclass(frozen=True, slots=True)
class Retain:
    """Publish only rows whose `column` is at most `days` back, or NULL.

    Attributes:
        as_of: count from the day of the refresh (UTC), or from the model's latest value.
    """

    column: str
    days: int
    as_of: Literal["run", "max"] = "run"


def is_span(lookback: str) -> bool:
    """Whether a lookback is a time span, such as "3 days"."""
    return bool(_SPAN.fullmatch(lookback))
