"""How the changes of a table are shipped, and which of its rows are kept."""

import re
from dataclasses import dataclass
from typing import Literal

_SPAN = re.compile(r"\d+ (second|minute|hour|day|week|month|year)s?")


@dataclass(frozen=True, slots=True)
class Replace:
    """Ship the table whole."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A change-data-capture feed: another model, whose rows name the keys that were touched.

    The feed only says where to look. The rows that are shipped come from the table's model.

    Attributes:
        model: its asset key.
        columns: pairs (key column of the table, column of the feed).
    """

    model: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """Ship the rows that changed; `key` identifies a row."""

    key: tuple[str, ...]
    feed: Feed | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """Ship the rows whose `cursor` is not below the last published maximum less `lookback`.

    Attributes:
        lookback: how far late rows reach back: a number for a numeric cursor, a span such as
            "3 days" for a date or a timestamp.
    """

    cursor: str
    lookback: int | str | None = None


@dataclass(frozen=True, slots=True)
class Partitions:
    """Ship the partitions that were materialized again; `column` tells that of a row."""

    column: str


Policy = Replace | Diff | Append | Partitions


@dataclass(frozen=True, slots=True)
class Retain:
    """Publish no rows whose `column` lies more than `days` back; rows without a value stay.

    Attributes:
        as_of: counted from the day of the refresh (UTC), or from the model's latest value.
    """

    column: str
    days: int
    as_of: Literal["run", "max"] = "run"


def is_span(lookback: str) -> bool:
    """Whether it is a span of time, such as "3 days"."""
    return bool(_SPAN.fullmatch(lookback))


def is_lookback(lookback: str) -> bool:
    """Whether it is a span of time, or a number."""
    return is_span(lookback) or lookback.isdecimal()
