"""Which requests are repeated, and when.

* 429, or 503 with Retry-After, means that a request was not carried out. Any such request is
  repeated, as is one that never reached the server.
* After a broken connection, 502, 504 and a bare 503, it is not known whether the request arrived.
  Only requests that may safely arrive twice are repeated: reads, and updates, whose RequestID the
  server carries out once. A publish is never repeated.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests
from urllib3.exceptions import MaxRetryError, ResponseError
from urllib3.util import Retry

from tableau_pipeline.publishing.session.answers import check_answer
from tableau_pipeline.publishing.session.wire import Wire, WireAdapter

_READS = frozenset({"GET"})
# The pipeline uses PATCH only for data updates, which have a RequestID.
_UPDATES = frozenset({"PATCH"})
_SAFE_TWICE = _READS | _UPDATES
_CONFLICT, _TOO_LARGE, _TOO_MANY, _UNAVAILABLE = 409, 413, 429, 503
_GATEWAY_FAILED = frozenset({502, _UNAVAILABLE, 504})
_LONGEST_WAIT = 300
# A server that upgrades to https needs one; whatever needs more leads in circles.
_MOST_REDIRECTS = 3


@dataclass(frozen=True, slots=True)
class RetryTimes:
    """Pauses and time limits of requests, in seconds.

    Attributes:
        backoff: the pause before the first retry; each later pause is twice as long.
        read: the time limit of a request that only reads, or signs in.
        write: the time limit of any other, and of a download. A server may need long to join many
            gigabytes of blocks before it answers.
    """

    backoff: float = 0.5
    read: float = 300
    write: float = 3600


class TooLargeError(requests.RequestException):
    """A request was refused because of its size, and not carried out."""


class RefusedLaterError(requests.RequestException):
    """A repeated update was refused, but the server may have received the first one."""


class SafeRetry(Retry):
    """Applies the rules of this module."""

    def __init__(self, *args: Any, log: logging.Logger, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._log = log

    def new(self, **settings: Any) -> "SafeRetry":
        """Return a copy with other retry counts."""
        # urllib3 makes such a copy after each attempt, and does not know about the log.
        return super().new(log=self._log, **settings)

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        """Whether a request is repeated after this answer."""
        if status_code == _TOO_MANY or (status_code == _UNAVAILABLE and has_retry_after):
            return True
        return method in _SAFE_TWICE and status_code in _GATEWAY_FAILED

    def increment(
        self, method: Any = None, url: Any = None, response: Any = None, *args: Any, **more: Any
    ) -> "SafeRetry":
        """Count one more retry; fail if the server asks for too long a wait."""
        if response is not None and self._asked_to_wait(response) > _LONGEST_WAIT:
            raise MaxRetryError(more["_pool"], url, ResponseError(f"{response.status}"))
        return super().increment(method, url, response, *args, **more)

    def sleep(self, response: Any = None) -> None:
        """Wait as long as the server asks, or a little longer with each retry."""
        last = self.history[-1]
        seconds = self._asked_to_wait(response) or self.get_backoff_time()
        self._log.warning(
            "%s %s: %s; trying again%s",
            last.method,
            (last.url or "").partition("?")[0],
            f"the server answered {last.status}" if last.status else "no answer",
            f" in {seconds:.0f} s" if seconds >= 1 else "",
        )
        super().sleep(response)

    def _asked_to_wait(self, response: Any) -> float:
        return (response and self.get_retry_after(response)) or 0


class SafeAdapter(WireAdapter):
    """Waits long for a server that stopped answering, but not for ever."""

    def __init__(self, wire: Wire, *, retry: SafeRetry, write_seconds: float) -> None:
        super().__init__(wire, max_retries=retry)
        self._write_seconds = write_seconds

    def send(
        self, request: requests.PreparedRequest, *args: Any, **settings: Any
    ) -> requests.Response:
        """Send one request.

        Raises:
            TooLargeError: something on the way does not let a request of this size through.
            RefusedLaterError: a repeated update was refused, but the first one may have been
                received.
        """
        reads = request.method in _READS and not settings.get("stream")
        is_quick = reads or "/auth/" in request.path_url
        seconds = self.wire.seconds if is_quick else self._write_seconds
        response = self.ask(request, *args, seconds=seconds, check=check_answer, **settings)
        # Proxies answer this in formats of their own, whose status TSC does not keep.
        if response.status_code == _TOO_LARGE:
            response.close()
            raise TooLargeError(request=request, response=response)
        if request.method in _UPDATES and _refused(response) and _may_have_arrived(response):
            response.close()
            raise RefusedLaterError(request=request, response=response)
        return response


def safe_sessions(
    wire: Wire, log: logging.Logger, hook: Callable[..., None], *, times: RetryTimes
) -> Callable[[], requests.Session]:
    """Return a factory of HTTP sessions for TSC.

    Args:
        wire: where their requests may go.
        log: receives a message for every repeated request.
        hook: called with every answer.
    """
    retry = SafeRetry(
        total=None,
        connect=3,
        read=3,
        status=4,
        other=0,
        allowed_methods=_SAFE_TWICE,
        backoff_factor=times.backoff,
        # The last answer goes on to TSC, which reads Tableau's error code from it.
        raise_on_status=False,
        log=log,
    )

    def session() -> requests.Session:
        made = requests.Session()
        made.hooks["response"].append(hook)
        for scheme in ("http://", "https://"):
            made.mount(scheme, SafeAdapter(wire, retry=retry, write_seconds=times.write))
        made.max_redirects = _MOST_REDIRECTS
        return made

    return session


def _refused(response: requests.Response) -> bool:
    # Some servers answer a request that they have already received with a conflict.
    return 400 <= response.status_code < 500 and response.status_code != _CONFLICT


def _may_have_arrived(response: requests.Response) -> bool:
    """Whether an earlier attempt was left unanswered, or answered only by a gateway."""
    return any(
        past.error is not None or past.status in _GATEWAY_FAILED
        for past in response.raw.retries.history
    )
