from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]

# Clients parse this form only: with fractions of a second or an offset they read no time at all.
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def system_clock() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """A moment as the API writes it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime(_FORMAT)


def moment_of(stamp: str) -> datetime:
    """The moment of a stamp."""
    return datetime.strptime(stamp, _FORMAT).replace(tzinfo=UTC)


def stamp_after(previous: str, moment: datetime) -> str:
    """The stamp of a moment, and at least one second after `previous`.

    Clients tell two states of a data source apart by `updatedAt`, which counts whole seconds: two
    publishes within one second must not look like one.
    """
    return stamp(max(moment_of(previous) + timedelta(seconds=1), moment))
