import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_logger = logging.getLogger(__name__)


class RequestLog:
    """Logs the method, path, status and duration of each request.

    It does not log bodies, headers or queries, which may contain secrets.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and log its result."""
        if scope["type"] != "http" or not _logger.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), "-"

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            took = (time.perf_counter() - started) * 1000
            # The raw path cannot contain line breaks.
            path = scope["raw_path"].decode("ascii", "replace")
            _logger.info("%s %s %s %.0f ms", scope["method"], path, status, took)


@contextmanager
def requests_logged_to(stream: TextIO) -> Generator[None]:
    """Write the log of requests to a stream within the block; otherwise it is discarded."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    _logger.addHandler(handler)
    _logger.setLevel(logging.INFO)
    _logger.propagate = False
    try:
        yield
    finally:
        _logger.removeHandler(handler)
        _logger.setLevel(logging.NOTSET)
        _logger.propagate = True
