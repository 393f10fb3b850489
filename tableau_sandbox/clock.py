from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]

# Clients parse only this form: they cannot read an offset or fractions of a second.
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def system_clock() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    """Format a time as the API does: in UTC, in whole seconds."""
    return moment.astimezone(UTC).strftime(_FORMAT)


def moment_of(stamp: str) -> datetime:
    """Return the time that a stamp of the API states."""
    return datetime.strptime(stamp, _FORMAT).replace(tzinfo=UTC)


def stamp_after(previous: str, moment: datetime) -> str:
    """Return the stamp of a time; it is at least one second after `previous`.

    Clients distinguish two states of a data source by its `updatedAt`, in whole seconds. So two
    publishes within one second need different stamps.
    """
    return stamp(max(moment_of(previous) + timedelta(seconds=1), moment))
