"""The server's own clock, as its answers tell it."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from time import monotonic

import requests


class ServerClock:
    """Goes by the `Date` of the newest answer; behind by the way of that answer and a second."""

    def __init__(self) -> None:
        self._heard: tuple[datetime, float] | None = None

    def hear(self, response: requests.Response, **_: object) -> None:
        """Take note of an answer; one without a time, or with one that is none, says nothing."""
        try:
            date = parsedate_to_datetime(response.headers["Date"])
        except (KeyError, ValueError):
            return
        # HTTP knows GMT only; a date that names no zone is read without one.
        self._heard = date if date.tzinfo else date.replace(tzinfo=UTC), monotonic()

    def now(self) -> datetime | None:
        """The present in UTC; None as long as no answer has told a time."""
        if self._heard is None:
            return None
        date, at = self._heard
        return date.astimezone(UTC) + timedelta(seconds=monotonic() - at)
