"""HTTP without sockets: urllib3's connections to one host end at an ASGI application.

Everything above them is real: the client library, its sessions, and what they make again.
"""

import io
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPMessage, responses
from typing import Any
from urllib.parse import urlsplit

import starlette.responses
import urllib3.util.retry
from starlette.types import ASGIApp, Message
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.response import HTTPResponse

from tableau_pipeline.publishing.session.deadline import TimedPool
from tableau_sandbox.control import calls
from tableau_sandbox.rest import api as rest_api
from tableau_sandbox.vds.service import api as vds_api

HOST = "sandbox.test"
URL = f"http://{HOST}"


@dataclass
class Exchange:
    """A request, and what is answered.

    Attributes:
        path: below `/api/{version}/`, without the query.
        status: of the answer; None until there is one.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    status: int | None = None
    answer_headers: tuple[tuple[str, str], ...] = ()
    answer: bytes = b""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path.removeprefix("/api/").partition("/")[2]


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


@contextmanager
def without_threads() -> Generator[None]:
    """The sandbox does its work where it is asked, so that no loop and no thread is needed."""

    async def here(call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)

    async def one_by_one(items: Iterable[bytes]) -> AsyncIterator[bytes]:
        for item in items:
            yield item

    kept = [
        (module, name, getattr(module, name))
        for module, name in (
            (rest_api, "run_in_threadpool"),
            (vds_api, "run_in_threadpool"),
            (calls, "run_in_threadpool"),
            (starlette.responses, "iterate_in_threadpool"),
        )
    ]
    for module, name, _ in kept:
        setattr(module, name, one_by_one if name == "iterate_in_threadpool" else here)
    try:
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)


def answered(app: ASGIApp, exchange: Exchange) -> None:
    """Let an application answer, which must not wait for anything."""
    url = urlsplit(exchange.target)
    headers = {name.lower(): value for name, value in exchange.headers.items()}
    headers.setdefault("host", HOST)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": exchange.method,
        "scheme": "http",
        "path": url.path,
        "raw_path": url.path.encode(),
        "query_string": url.query.encode(),
        "root_path": "",
        "headers": [(name.encode(), _text(value)) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": (HOST, 80),
        "state": {},
    }
    parts = iter([exchange.body])
    chunks: list[bytes] = []

    async def receive() -> Message:
        for body in parts:
            return {"type": "http.request", "body": body, "more_body": False}
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            exchange.status = message["status"]
            exchange.answer_headers = tuple(
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in message["headers"]
            )
        else:
            chunks.append(bytes(message.get("body", b"")))

    coroutine = app(scope, receive, send)
    try:
        coroutine.send(None)  # ty: ignore
    except StopIteration:
        pass
    else:
        raise AssertionError("the application waits for something")
    exchange.answer = b"".join(chunks)


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


def _text(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")
