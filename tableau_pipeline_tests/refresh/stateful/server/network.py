"""The network between refreshes and the server: it names each call, and injects faults."""

import io
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from http.client import HTTPMessage, responses
from random import Random
from typing import Any

import urllib3.util.retry
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.response import HTTPResponse

from tableau_pipeline.publishing.deadlines import TimedPool
from tableau_pipeline_tests.refresh.stateful.checks import sending
from tableau_pipeline_tests.refresh.stateful.refreshes import NetworkFault, Refresh
from tableau_pipeline_tests.refresh.stateful.server.contents import rows_of
from tableau_sandbox.simulation import HOST, Exchange, Simulation

URL = f"http://{HOST}"


# A function that carries out an exchange. It raises OSError if the connection breaks.
Carrier = Callable[[Exchange], None]


class _Connection:
    """A connection for urllib3 that carries exchanges to the simulated server."""

    is_closed = False
    is_verified = True
    proxy_is_verified = None
    proxy = None
    timeout: Any = None
    carry: Carrier

    def __init__(self, **_: Any) -> None:
        self._exchange: Exchange | None = None

    @property
    def is_connected(self) -> bool:
        return True

    def request(
        self, method: str, url: str, body: Any = None, headers: Any = None, **_: Any
    ) -> None:
        self._exchange = Exchange(method, url, dict(headers or {}), _bytes(body))
        self.carry(self._exchange)

    def getresponse(self) -> HTTPResponse:
        exchange = self._exchange
        assert exchange is not None
        assert exchange.status is not None
        headers = HTTPMessage()
        for name, value in exchange.answer_headers:
            headers[name] = value
        return HTTPResponse(
            io.BytesIO(exchange.answer),
            headers=urllib3.HTTPHeaderDict(headers.items()),
            status=exchange.status,
            version=11,
            version_string="HTTP/1.1",
            reason=responses.get(exchange.status, ""),
            preload_content=False,
            request_method=exchange.method,
            request_url=exchange.target,
        )

    def close(self) -> None:
        self._exchange = None


class _Time:
    """The module `time` for urllib3's retries, with another `sleep`."""

    def __init__(self, real: Any, sleep: Callable[[float], None]) -> None:
        self._real, self.sleep = real, sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@contextmanager
def intercepted(carry: Carrier, sleep: Callable[[float], None]) -> Generator[None]:
    """Send all plain HTTP of this process through `carry`. Retries wait by `sleep`."""
    connection = type("Connection", (_Connection,), {"carry": staticmethod(carry)})
    pools: list[Any] = [HTTPConnectionPool, TimedPool]
    retry, originals = urllib3.util.retry, [pool.ConnectionCls for pool in pools]
    time, retry.time = retry.time, _Time(retry.time, sleep)  # ty: ignore
    for pool in pools:
        pool.ConnectionCls = connection
    try:
        yield
    finally:
        retry.time = time
        for pool, original in zip(pools, originals, strict=True):
            pool.ConnectionCls = original


def _bytes(body: Any) -> bytes:
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes | bytearray):
        return bytes(body)
    if hasattr(body, "read"):
        return body.read()
    return b"".join(body)


# The names of calls. The names of points contain them, such as "before look".
_NAMES = (
    ("POST", "auth/signin", "sign in"),
    ("POST", "auth/signout", "sign out"),
    ("POST", "sites/{id}/datasources", "send a publish"),
    ("PATCH", "sites/{id}/datasources/{id}/data", "send an update"),
    ("GET", "sites/{id}/datasources/{id}", "look"),
    ("GET", "sites/{id}/datasources", "look by name"),
    ("GET", "sites/{id}/datasources/{id}/revisions", "look at revisions"),
    ("GET", "sites/{id}/datasources/{id}/content", "download"),
    ("PUT", "sites/{id}/datasources/{id}", "alter"),
    ("PUT", "sites/{id}/datasources/{id}/tags", "tag"),
    ("DELETE", "sites/{id}/datasources/{id}/tags/{id}", "untag"),
    ("PUT", "sites/{id}/datasources/{id}/permissions", "permit"),
    ("DELETE", "sites/{id}/datasources/{id}/permissions/groups/{id}/{id}/{id}", "forbid"),
    ("POST", "sites/{id}/fileUploads", "begin an upload"),
    ("PUT", "sites/{id}/fileUploads/{id}", "upload"),
    ("GET", "sites/{id}/jobs", "list jobs"),
    ("GET", "sites/{id}/jobs/{id}", "ask for a job"),
    ("PUT", "sites/{id}/jobs/{id}", "cancel a job"),
    ("GET", "sites/{id}/projects", "look for projects"),
    ("GET", "serverInfo", "ask for the version"),
    ("POST", "vizql-data-service/read-metadata", "ask for fields"),
    ("POST", "vizql-data-service/query-datasource", "count"),
)
_PATTERNS = [
    (method, re.compile(path.replace("{id}", "([^/]+)")), name) for method, path, name in _NAMES
]
_SENDS = ("send a publish", "send an update")
_EDITS = ("alter", "tag", "untag", "permit", "forbid")
_CHANGES = (*_SENDS, *_EDITS, "cancel a job")
_REFUSALS = {401: "401002", 429: "429000", 500: "500000", 503: "503000", 504: "504000"}


@dataclass
class Network:
    """Carries the calls of the active refresh."""

    tableau: Simulation
    chance: Random
    history: Any = None

    def carry(self, exchange: Exchange) -> None:
        """Pass a call to the server, and the answer back, unless an event prevents this."""
        history, (name, ids) = self.history, _call(exchange)
        refresh: Refresh = history.running[-1]
        self.tableau.pass_time(self.chance.choice((0, 0.02, 0.3)))
        history.reach_point(f"before {name}")
        if _inject_fault(refresh, exchange):
            return
        if name in _SENDS and not refresh.of_other_environment:
            headers = {name.lower(): value for name, value in exchange.headers.items()}
            sending.check_may_send(history, refresh, headers.get("requestid"))
        refresh.change_count += name in _CHANGES
        self.tableau.carry(exchange)
        if name in _EDITS and not refresh.of_other_environment:
            # A refresh knows the time of an edit from the server's `Date`, which has whole seconds.
            # So the period of the edit begins earlier.
            now = refresh.edited_at = self.tableau.now
            history.requests.edits.append((now - timedelta(seconds=2), now))
        if exchange.status == 200 and name in ("look", "look by name"):
            self._looked(refresh, ids[-1])
        history.reach_point(f"after {name}")
        _inject_fault(refresh, exchange)

    def _looked(self, refresh: Refresh, luid: str) -> None:
        self.history.close_edits(refresh)
        refresh.looked_at, refresh.seen_rows = self.history.next_moment(), None
        seen = [d for d in self.tableau.datasources() if d.luid == luid]
        refresh.seen_rows = rows_of(self.tableau, seen[0]) if seen else None


def _call(exchange: Exchange) -> tuple[str, tuple[str, ...]]:
    """The name of a call, and the ids in its path."""
    for method, pattern, name in _PATTERNS:
        if exchange.method == method and (match := pattern.fullmatch(exchange.path)):
            return name, match.groups()
    return f"{exchange.method} {exchange.path}", ()


def _inject_fault(refresh: Refresh, exchange: Exchange) -> bool:
    """Let a fault of the network replace the answer.

    Returns:
        Whether there is a fault.

    Raises:
        ConnectionResetError: the connection breaks.
    """
    fault: NetworkFault | None
    fault, refresh.fault = refresh.fault, None
    if fault is None:
        return False
    if fault.status is None:
        raise ConnectionResetError("the connection is dead")
    exchange.status = fault.status
    exchange.answer_headers = (("Content-Type", "application/xml"),)
    exchange.answer = (
        '<?xml version="1.0"?><tsResponse xmlns="http://tableau.com/api">'
        f'<error code="{_REFUSALS[fault.status]}"><summary>Trouble</summary>'
        "<detail>Trouble.</detail></error></tsResponse>"
    ).encode()
    return True
