"""Which calls are made again, and when: never those that the server may have carried out."""

import logging
from collections.abc import Callable
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import MaxRetryError, ResponseError
from urllib3.util import Retry

_READS = frozenset({"GET"})
_TOO_LARGE, _TOO_MANY, _UNAVAILABLE = 413, 429, 503
_GATEWAY_FAILED = frozenset({502, _UNAVAILABLE, 504})
_BACKOFF = 0.5
_LONGEST_WAIT = 300
_CONNECT_SECONDS = 30
# A publish answers when its file is in place.
_READ_SECONDS, _WRITE_SECONDS = 300, 3600


class TooLargeError(requests.RequestException):
    """A request was refused for its size, and not carried out."""


class PatientRetry(Retry):
    """Tries again what never reached the server or was put off by it; else only what reads."""

    def __init__(self, *args: Any, log: logging.Logger, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._log = log

    def new(self, **settings: Any) -> "PatientRetry":
        """The same with other counts."""
        return super().new(log=self._log, **settings)

    def is_retry(self, method: str, status_code: int, has_retry_after: bool = False) -> bool:
        """Whether an answer means that the call was not carried out, or was no more than a read."""
        if status_code == _TOO_MANY or (status_code == _UNAVAILABLE and has_retry_after):
            return True
        return method in _READS and status_code in _GATEWAY_FAILED

    def increment(
        self, method: Any = None, url: Any = None, response: Any = None, *args: Any, **more: Any
    ) -> "PatientRetry":
        """Count one more try; what has to wait too long is not tried again."""
        if response is not None and self._asked_to_wait(response) > _LONGEST_WAIT:
            raise MaxRetryError(more["_pool"], url, ResponseError(f"{response.status}"))
        return super().increment(method, url, response, *args, **more)

    def sleep(self, response: Any = None) -> None:
        """Wait as long as the server asks for, or somewhat longer each time."""
        last = self.history[-1]
        seconds = self._asked_to_wait(response) or self.get_backoff_time()
        self._log.warning(
            "%s %s: %s; trying again in %.0f s",
            last.method,
            (last.url or "").partition("?")[0],
            f"the server answered {last.status}" if last.status else "no answer",
            seconds,
        )
        super().sleep(response)

    def _asked_to_wait(self, response: Any) -> float:
        return (response and self.get_retry_after(response)) or 0


class PatientAdapter(HTTPAdapter):
    """Waits long, but not for ever, for a server that has gone without a word."""

    def send(
        self, request: requests.PreparedRequest, *args: Any, **settings: Any
    ) -> requests.Response:
        """Send one request.

        Raises:
            TooLargeError: something on the way does not let a request of this size through.
        """
        seconds = _READ_SECONDS if request.method in _READS else _WRITE_SECONDS
        settings["timeout"] = (_CONNECT_SECONDS, seconds)
        response = super().send(request, *args, **settings)
        # Proxies say this in words of their own, of which TSC keeps no status.
        if response.status_code == _TOO_LARGE:
            response.close()
            raise TooLargeError(request=request, response=response)
        return response


def patient_sessions(log: logging.Logger) -> Callable[[], requests.Session]:
    """What makes the HTTP sessions for TSC; `log` is told of every call that is made again."""
    retry = PatientRetry(
        total=None,
        connect=3,
        read=3,
        status=4,
        other=0,
        allowed_methods=_READS,
        backoff_factor=_BACKOFF,
        raise_on_status=False,
        log=log,
    )

    def session() -> requests.Session:
        made = requests.Session()
        for scheme in ("http://", "https://"):
            made.mount(scheme, PatientAdapter(max_retries=retry))
        return made

    return session
