"""What holds for every request of a session, whichever call it belongs to.

It goes to the server and nowhere else, is over in time, and what it brings is limited and looks
like an answer.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import requests

from tableau_pipeline.core.units import megabytes
from tableau_pipeline.publishing.session.address import Address
from tableau_pipeline.publishing.session.answers import check_file
from tableau_pipeline.publishing.session.deadline import Deadline, TimedAdapter
from tableau_pipeline.publishing.session.secrets import Secrets

_CONNECT_SECONDS = 30
# Bytes of an answer: a page of 1,000 data sources has less than two million.
_ANSWER = 8 * 10**6
_DOWNLOAD: ContextVar[int] = ContextVar("download", default=_ANSWER)


class TooMuchError(requests.RequestException):
    """An answer is larger than it may be."""


@dataclass(frozen=True, slots=True)
class Wire:
    """Where the requests of a session go, and what they carry.

    Attributes:
        seconds: the time limit of a request that only reads.
    """

    address: Address
    seconds: float
    secrets: Secrets = field(default_factory=Secrets)


@contextmanager
def downloads_up_to(size: int) -> Generator[None]:
    """Let files of so many bytes be downloaded."""
    token = _DOWNLOAD.set(size)
    try:
        yield
    finally:
        _DOWNLOAD.reset(token)


class WireAdapter(TimedAdapter):
    """Sends the requests of a session, and reads all answers but files."""

    def __init__(self, wire: Wire, **settings: Any) -> None:
        super().__init__(**settings)
        self.wire = wire

    def ask(
        self,
        request: requests.PreparedRequest,
        *args: Any,
        seconds: float,
        check: Callable[[requests.Response, Secrets], None] | None,
        **settings: Any,
    ) -> requests.Response:
        """Send a request.

        Args:
            seconds: for each attempt, from the request to the end of a body.
            check: checks an answer that is not a file.

        Raises:
            OtherOriginError: it would go to another server.
            NoAnswerError: what came is no answer of Tableau.
            TooMuchError: the answer is larger than it may be.
            TooSlowError: it took too long.
        """
        wire = self.wire
        wire.address.check(request.url)
        wire.secrets.learn(request)
        deadline = Deadline(seconds)
        settings["timeout"] = (_CONNECT_SECONDS, seconds)
        response = self.send_until(deadline, request, *args, **settings)
        is_file = bool(settings.get("stream")) and response.ok and not response.is_redirect
        response.raw = _Body(response.raw, deadline, _DOWNLOAD.get() if is_file else _ANSWER)
        try:
            if is_file:
                check_file(response, wire.secrets)
            elif response.content is not None and check:
                check(response, wire.secrets)
        except BaseException:
            response.close()
            raise
        return response

    def send(
        self, request: requests.PreparedRequest, *args: Any, **settings: Any
    ) -> requests.Response:
        """Send a request that only reads, and check nothing of its answer."""
        return self.ask(request, *args, seconds=self.wire.seconds, check=None, **settings)


class _Body:
    """The body of an answer; what it does not define is urllib3's."""

    def __init__(self, raw: Any, deadline: Deadline, limit: int) -> None:
        self._raw, self._deadline, self._limit = raw, deadline, limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, amount: int, **settings: Any) -> Iterator[bytes]:
        """Yield the body piece by piece."""
        self._check(self._announced())
        seen = 0
        try:
            for piece in self._raw.stream(amount, **settings):
                seen += len(piece)
                self._check(seen)
                yield piece
        except Exception as error:
            self._deadline.check(error)
            raise
        finally:
            self._deadline.end()
        # A connection that is ended may look like the end of a body.
        self._deadline.check()

    def close(self) -> None:
        """Stop reading."""
        self._deadline.end()
        self._raw.close()

    def _check(self, size: int) -> None:
        if size > self._limit:
            self.close()
            raise TooMuchError(f"the answer is larger than {megabytes(self._limit)}")

    def _announced(self) -> int:
        with suppress(ValueError):
            return int(self._raw.headers.get("Content-Length", 0))
        return 0
