"""Decide which requests are repeated and when, and limit the number of requests.

* The answer 429, or 503 with Retry-After, means that the server did not carry out the request. Such
  requests are repeated, even publishes. Requests that never reached the server are repeated, too.
  While a server asks for a pause, no session of this process sends requests to that server.
* After a broken connection, 502, 504, or 503 without Retry-After, it is unknown whether the request
  arrived. Then only requests that may safely arrive twice are repeated: reads and updates. The
  server carries out an update only once, because each update has a RequestID. A publish is not
  repeated in these cases.
"""

import logging
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

from urllib3.exceptions import MaxRetryError, ResponseError
from urllib3.util import Retry

from tableau_pipeline.errors import BudgetSpentError


@dataclass(frozen=True, slots=True)
class RetryTimes:
    """Pauses and time limits of requests, in seconds.

    Attributes:
        backoff: half of the pause before the second retry. The first retry has no pause, and each
            later pause is twice as long as the pause before it.
        read: the time limit for sending a request that only reads or signs in. The same limit
            applies to the wait for the answer.
        write: the same kind of limit for any other request, and for a download. It is long, because
            a server joins many gigabytes of blocks before it answers.
    """

    backoff: float = 0.5
    read: float = 300
    write: float = 3600


@dataclass(slots=True)
class RequestBudget:
    """Counts the requests of a session, including each retry, and limits their number.

    Attributes:
        sent: how many requests the session has sent.
        most: how many requests the session may send; None for any number. The last request is
            reserved for signing out.
    """

    sent: int = 0
    most: int | None = None

    def take(self, *, to_sign_out: bool = False) -> None:
        """Count a request that is about to be sent.

        Raises:
            BudgetSpentError: the request must not be sent, because the budget is used up.
        """
        if self.most is not None and self.sent >= self.most - (not to_sign_out):
            raise BudgetSpentError(f"the budget of {self.most:,} requests is used up")
        self.sent += 1


class SharedPause:
    """Makes all sessions of this process wait for a server that asks one of them to wait."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def begin(self, server: str, seconds: float) -> None:
        """Make requests to a server wait for this number of seconds."""
        until = time.monotonic() + seconds
        self._until[server] = max(until, self._until.get(server, until))

    def wait(self, server: str, log: logging.Logger) -> None:
        """Wait for the end of the server's pause; return at once if there is no pause."""
        while (left := self._until.get(server, 0.0) - time.monotonic()) > 0:
            if left >= 1:
                log.warning("Waiting %.0f s, as the server asked another session to wait", left)
            time.sleep(left)


PAUSE = SharedPause()


GATEWAY_FAILED = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)


# The pipeline uses PATCH only for data updates, which have a RequestID.
UPDATE = "PATCH"


SAFE_TWICE = frozenset({"GET", UPDATE})


_LONGEST_WAIT = 300


class CountedRetry(Retry):
    """Counts each retry in the budget of the session."""

    def __init__(self, *args: Any, budget: RequestBudget, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._budget = budget

    def new(self, **settings: Any) -> Self:
        """Return a copy with other retry counts."""
        # urllib3 copies this object after each attempt, but does not know the budget: pass it on.
        return super().new(budget=self._budget, **settings)

    def sleep(self, response: Any = None) -> None:
        """Wait before the next attempt.

        Raises:
            BudgetSpentError: the budget allows no further attempt.
        """
        self._budget.take()
        super().sleep(response)


class SafeRetry(CountedRetry):
    """Repeats requests by the rules of this module."""

    def __init__(self, *args: Any, log: logging.Logger, server: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._log, self._server = log, server

    def new(self, **settings: Any) -> Self:
        """Return a copy with other retry counts."""
        return super().new(log=self._log, server=self._server, **settings)

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        """Whether a request is repeated after this answer."""
        if status_code == HTTPStatus.TOO_MANY_REQUESTS or (
            status_code == HTTPStatus.SERVICE_UNAVAILABLE and has_retry_after
        ):
            return True
        return method in SAFE_TWICE and status_code in GATEWAY_FAILED

    def increment(
        self, method: Any = None, url: Any = None, response: Any = None, *args: Any, **more: Any
    ) -> "SafeRetry":
        """Count one more retry; raise an error if the server asks for too long a pause."""
        if seconds := self._asked_to_wait(response):
            if seconds > _LONGEST_WAIT:
                raise MaxRetryError(more["_pool"], url, ResponseError(f"{response.status}"))
            PAUSE.begin(self._server, seconds)
        return super().increment(method, url, response, *args, **more)

    def sleep(self, response: Any = None) -> None:
        """Wait as long as the server asks; if it does not ask, wait longer with each retry."""
        last = self.history[-1]
        seconds = self._asked_to_wait(response) or self.get_backoff_time()
        self._log.warning(
            "%s %s: %s; trying again%s",
            last.method,
            (last.url or "").partition("?")[0],
            f"the server answered {last.status}" if last.status else "no answer",
            f" in {seconds:.0f} s" if seconds >= 1 else "",
            extra={"status": last.status, "seconds": seconds},
        )
        super().sleep(response)

    def _asked_to_wait(self, response: Any) -> float:
        return (response and self.get_retry_after(response)) or 0
