"""The server's own clock, known from its answers."""

from datetime import MAXYEAR, UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from time import monotonic

import requests


class ServerClock:
    """Follows the `Date` of the newest answer; late by its transfer time and up to a second."""

    def __init__(self) -> None:
        self._heard: tuple[datetime, float] | None = None

    def hear(self, response: requests.Response, **_: object) -> None:
        """Use the `Date` of an answer; ignore an answer without a valid one."""
        try:
            date = parsedate_to_datetime(response.headers["Date"])
            # HTTP dates are always in GMT; a date that names no zone is parsed as naive.
            date = (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)
        except (KeyError, OverflowError, ValueError):
            return
        # The last year leaves no room for what comes later.
        if date.year < MAXYEAR:
            self._heard = date, monotonic()

    def now(self) -> datetime | None:
        """Return the current time in UTC; None if no answer has had a date."""
        if self._heard is None:
            return None
        # This host's clock may be wrong, or set meanwhile, so it only counts the seconds.
        date, at = self._heard
        return date + timedelta(seconds=monotonic() - at)
