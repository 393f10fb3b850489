"""Times and sizes as pages show them."""

from datetime import datetime

_UNITS = ("bytes", "KB", "MB", "GB")


def size(count: int) -> str:
    """Format a number of bytes; 1 MB is 10^6 bytes."""
    amount, unit = float(count), 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    # No line break between number and unit.
    return f"{amount:.1f}\N{NO-BREAK SPACE}{_UNITS[unit]}" if unit else f"{count} bytes"


def moment(stamp: str | None) -> str:
    """Format a time of the API for reading; all are in UTC."""
    return (stamp or "").replace("T", " ").replace("Z", "")


def seconds_between(start: str | None, end: str | None) -> str:
    """Return a duration in whole seconds, as the API has them."""
    if start is None or end is None:
        return ""
    return f"{(datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds():,.0f} s"


def rows(count: int) -> str:
    """Format a number of rows."""
    return f"{count:,} row" if count == 1 else f"{count:,} rows"
