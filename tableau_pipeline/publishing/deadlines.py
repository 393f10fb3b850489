"""Limit the time of a connection, the time of a whole answer, and the size of a download.

The libraries requests and urllib3 limit the time for each piece of an answer, but not for the whole
answer. To limit the time for the whole answer, this module uses internals of urllib3 and
http.client; `tableau_pipeline_tests/publishing/test_deadlines.py` tests these internals.
"""

import io
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.client import HTTPResponse
from time import monotonic
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ReadTimeoutError

from tableau_pipeline.publishing.errors import BadAnswerError
from tableau_pipeline.rendering import megabytes


class _InTime(io.RawIOBase):
    """Reads from a socket; applies the socket's time limit to the whole answer."""

    def __init__(self, received: io.RawIOBase, sock: Any) -> None:
        self._received, self._sock = received, sock
        self._end = monotonic() + sock.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._end - monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._received.readinto(buffer)

    def close(self) -> None:
        self._received.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: Any, *args: Any, **settings: Any) -> None:
        super().__init__(sock, *args, **settings)
        self.fp: Any = io.BufferedReader(_InTime(self.fp.detach(), sock))


class _Timed(HTTPConnection):
    response_class = _Response

    def connect(self) -> None:
        seconds, self.timeout = self.timeout, _CONNECT_SECONDS
        super().connect()
        # Now that the connection is made, use the time limit of the request.
        connected: Any = self.sock
        connected.settimeout(seconds)
        self.timeout = seconds

    def getresponse(self) -> Any:
        response = super().getresponse()
        # Let urllib3 close the answer before another attempt. By default, urllib3 would read the
        # answer to the end, which may never come.
        response.drain_conn = response.close
        return response


class _TimedTLS(_Timed, HTTPSConnection):
    pass


class TimedPool(HTTPConnectionPool):
    """Connections that limit the time for a whole answer."""

    ConnectionCls: Any = _Timed


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls: Any = _TimedTLS


POOLS: Any = {"http": TimedPool, "https": _TLSPool}
_CONNECT_SECONDS = 30
# The most bytes of an answer. A page of 1,000 data sources takes less than two million bytes.
_ANSWER = 8 * 10**6
_DOWNLOAD: ContextVar[int] = ContextVar("download", default=_ANSWER)


def largest_body(*, is_file: bool) -> int:
    """Return the most bytes of a downloaded file, or of any other answer."""
    return _DOWNLOAD.get() if is_file else _ANSWER


@contextmanager
def downloads_up_to(size: int) -> Generator[None]:
    """Allow the block to download files of up to `size` bytes."""
    token = _DOWNLOAD.set(size)
    try:
        yield
    finally:
        _DOWNLOAD.reset(token)


class LimitedBody:
    """The body of an answer with a limited size; urllib3's body provides all other attributes."""

    def __init__(self, raw: Any, *, limit: int, seconds: float) -> None:
        self._raw, self._limit, self._seconds = raw, limit, seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, amount: int, **settings: Any) -> Iterator[bytes]:
        """Yield the body piece by piece."""
        announced = self._raw.headers.get("Content-Length", "")
        self._check(int(announced) if announced.isdecimal() else 0)
        seen = 0
        try:
            for piece in self._raw.stream(amount, **settings):
                seen += len(piece)
                self._check(seen)
                yield piece
        except ReadTimeoutError as error:
            raise too_late(self._seconds) from error

    def _check(self, size: int) -> None:
        if size > self._limit:
            self._raw.close()
            most = megabytes(self._limit)
            raise BadAnswerError(f"does not answer as it should: the answer is larger than {most}.")


def too_late(seconds: float) -> BadAnswerError:
    """Return the error of an answer that took too long."""
    return BadAnswerError(
        f"does not answer as it should: the answer took longer than {seconds:g} s."
    )
