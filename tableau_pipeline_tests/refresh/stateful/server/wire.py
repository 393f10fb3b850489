"""HTTP without sockets: urllib3's connections to one host end at an ASGI application.

Everything above them is real: the client library, its sessions, and what they make again.
"""

import io
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.client import HTTPMessage, responses
from typing import Any

import urllib3.util.retry
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.response import HTTPResponse

from tableau_pipeline.publishing.http import TimedPool
from tableau_sandbox.simulation import HOST, Exchange

URL = f"http://{HOST}"


# Carries an exchange out; raises OSError where the connection breaks.
Carrier = Callable[[Exchange], None]


class _Connection:
    """What urllib3 asks of a connection."""

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


class _Pauses:
    """The module `time`, as what makes calls again uses it."""

    def __init__(self, real: Any, sleep: Callable[[float], None]) -> None:
        self._real, self.sleep = real, sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@contextmanager
def wired(carry: Carrier, sleep: Callable[[float], None]) -> Generator[None]:
    """All plain HTTP of this process goes through `carry`; its pauses are `sleep`."""
    connection = type("Connection", (_Connection,), {"carry": staticmethod(carry)})
    pools: list[Any] = [HTTPConnectionPool, TimedPool]
    retry, kept = urllib3.util.retry, [pool.ConnectionCls for pool in pools]
    time, retry.time = retry.time, _Pauses(retry.time, sleep)  # ty: ignore
    for pool in pools:
        pool.ConnectionCls = connection
    try:
        yield
    finally:
        retry.time = time
        for pool, before in zip(pools, kept, strict=True):
            pool.ConnectionCls = before


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
