"""ASGI middlewares around the application: they filter, log and change requests and answers."""

import logging
import re
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from ipaddress import IPv6Address, ip_address
from typing import TextIO

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger("tableau_sandbox.requests")
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_REFUSAL = (
    "The sandbox is addressed by a name that is not its own. If you gave it that name, start it"
    " with --allowed-host NAME.\n"
)
# Browsers send at least one of these headers with each request; clients of the API send none.
_SENT_BY_BROWSERS = (b"origin", b"sec-fetch-site")
# A name, an IPv4 address, or an IPv6 address in brackets; a port may follow.
_HOST = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::[0-9]*)?")


class HostGuard:
    """Passes on requests whose Host is a loopback name, the reached address, or an allowed name.

    After a web page has loaded, its owner may let the page's host name point to 127.0.0.1 (DNS
    rebinding). For the browser, the sandbox then belongs to the site of the page. The page could
    read the sandbox's answers, or sign in with the documented password. Only the header Host
    reveals the foreign name. The reached address may pass, because the host name of a foreign page
    cannot be the sandbox's address. The guard ignores the port in Host, because a forwarded port
    may differ.

    Args:
        app: the application to guard.
        allowed: further names of the sandbox.
        only_browsers: guard only against browsers; pass on all other requests, with any Host.
    """

    def __init__(self, app: ASGIApp, allowed: Iterable[str] = (), *, only_browsers: bool = False):
        self._app = app
        self._only_browsers = only_browsers
        self._names = {_canonical(name) for name in (*_LOOPBACK_NAMES, *allowed)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with the status 403."""
        unguarded = self._only_browsers and not _is_of_browser(scope)
        passes = unguarded or self._is_own(scope)
        await (self._app if passes else PlainTextResponse(_REFUSAL, 403))(scope, receive, send)

    def _is_own(self, scope: Scope) -> bool:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            return False
        name = host_name(hosts[0].decode("latin-1"))
        reached = scope.get("server")
        return name in self._names or (reached is not None and name == _canonical(reached[0]))


def _is_of_browser(scope: Scope) -> bool:
    return any(name in _SENT_BY_BROWSERS for name, _ in scope["headers"])


def host_name(header: str) -> str | None:
    """Return the name or address in a header Host, in one spelling; None for an invalid header."""
    parsed = _HOST.fullmatch(header)
    return _canonical(parsed[1] or parsed[2]) if parsed else None


def _canonical(name: str) -> str:
    try:
        address = ip_address(name)
    except ValueError:
        return name.lower()
    # A socket for both versions of IP shows 127.0.0.1 as ::ffff:127.0.0.1.
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)


def is_loopback(host: str) -> bool:
    """Whether an IP address is a loopback address, which only this machine can reach."""
    return ip_address(_canonical(host)).is_loopback


async def body_of(request: Request, most: int) -> bytes:
    """Return the first `most + 1` bytes of a body; a result of this length means "too long".

    This reads the body to its end, so that the client sees a refusal, but discards the rest.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk[: most + 1 - len(body)]
    return bytes(body)


class RequestLog:
    """Logs the method, path, status and duration of each request.

    It does not log bodies, headers or queries, which may contain secrets.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and log its result."""
        if scope["type"] != "http" or not LOG.isEnabledFor(logging.INFO):
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
            LOG.info("%s %s %s %.0f ms", scope["method"], path, status, took)


@contextmanager
def requests_logged_to(stream: TextIO) -> Generator[None]:
    """Write the log of requests to a stream, and only to this stream, within the block."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(logging.NOTSET)
        LOG.propagate = True


class LeadingSlashes:
    """Serves a path that begins with several slashes as if it began with one slash.

    Clients send such paths if the configured address of the server ends with a slash.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with one slash at the beginning of its path."""
        if scope["type"] == "http" and scope["path"].startswith("//"):
            path = re.sub("^/+", "/", scope["path"])
            raw_path = re.sub(b"^/+", b"/", scope["raw_path"])
            scope = {**scope, "path": path, "raw_path": raw_path}
        await self._app(scope, receive, send)


class DateHeader:
    """Sets the Date of every answer by the sandbox's clock; uvicorn uses the machine's clock."""

    def __init__(self, app: ASGIApp, clock: Callable[[], datetime]):
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and set the Date of its answer."""

        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                date = format_datetime(self._clock().astimezone(UTC), usegmt=True)
                MutableHeaders(scope=message)["Date"] = date
            await send(message)

        await self._app(scope, receive, send_dated)
