import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_logger = logging.getLogger(__name__)


class RequestLog:
    """Logs each request: its method, path and status, and how long it took.

    Neither bodies nor headers nor queries, which may hold secrets.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and log what became of it."""
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
            # As it came over the wire, a path has no line breaks.
            path = scope["raw_path"].decode("ascii", "replace")
            _logger.info("%s %s %s %.0f ms", scope["method"], path, status, took)


@contextmanager
def requests_logged_to(stream: TextIO) -> Generator[None]:
    """Show the log of requests while the context lasts; otherwise it goes nowhere."""
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
