"""Requests: where they may go, how long each may take, and which of them are repeated.

* 429, or 503 with Retry-After, means that a request was not carried out. Any such request is
  repeated, as is one that never reached the server.
* After a broken connection, 502, 504 and a bare 503, it is not known whether the request arrived.
  Only requests that may safely arrive twice are repeated: reads, and updates, whose RequestID the
  server carries out once. A publish is never repeated.
"""

import html
import logging
import re
import socket
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from threading import Timer
from time import monotonic
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, ParseError

import defusedxml.ElementTree
import requests
from defusedxml.common import DefusedXmlException
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import LocationParseError, MaxRetryError, ResponseError
from urllib3.util import Retry, parse_url

from tableau_pipeline.core.declaration import megabytes
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.objects.stores import scheme_and_host

_SIGN_IN = re.compile(r'(?:password|personalAccessTokenSecret|jwt)="([^"]+)"')
# Values in something that came instead of an answer: the session of a proxy, or a new token.
_VALUE = re.compile(r"""([=:]\s*)("[^"]*"?|'[^']*'?)""")
_LONGEST, _EXCERPT = 1500, 160


class Secrets:
    """The secrets that a session has sent, which a server may quote in its answers."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def learn(self, request: requests.PreparedRequest) -> None:
        """Remember the secrets in a request."""
        found = [str(request.headers.get("X-Tableau-Auth", ""))]
        if (request.path_url or "").endswith("/auth/signin"):
            body = request.body or b""
            text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)
            found += map(html.unescape, _SIGN_IN.findall(text))
        for secret in filter(None, found):
            self._known |= {secret, html.escape(secret), quote(secret, safe="")}

    def hide(self, text: str) -> str:
        """Return a text without the secrets."""
        for secret in sorted(self._known, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def message(self, text: str) -> str:
        """Return a message of the server without the secrets, and not longer than messages are."""
        hidden = self.hide(text)
        return hidden if len(hidden) <= _LONGEST else f"{hidden[:_LONGEST]}..."

    def excerpt(self, body: bytes) -> str:
        """Return the beginning of something that came instead of an answer."""
        if not body:
            return "nothing"
        # A secret may stand across the end, so more is searched than shown.
        text = self.hide(body[: 2**16].decode("utf-8", "replace"))
        shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        shown = _VALUE.sub(r"\1...", shown)
        return repr(shown if len(shown) <= _EXCERPT else f"{shown[:_EXCERPT]}...")


# What answers must hold. The client library takes what is missing for an empty list, or fails.
_API = re.compile(r"/api/[^/]+/(.*)")
_NAMESPACE = {"t": "http://tableau.com/api"}
_ITEM = "sites/[^/]+/datasources/[^/]+"
_NEEDED = [
    ("GET", "serverInfo", "serverInfo/t:restApiVersion"),
    ("POST", "auth/signin", "credentials/t:site"),
    ("POST", "auth/signin", "credentials/t:user"),
    ("GET", "sites/[^/]+/(projects|datasources|jobs|groups|users)", "pagination"),
    ("POST", "sites/[^/]+/projects", "project"),
    ("GET", _ITEM, "datasource"),
    ("GET", f"{_ITEM}/revisions", "pagination"),
    ("GET", f"{_ITEM}/connections", "connections"),
    ("PUT", f"{_ITEM}/tags", "tags"),
    ("POST", "sites/[^/]+/fileUploads", "fileUpload"),
    ("PUT", "sites/[^/]+/fileUploads/[^/]+", "fileUpload"),
    ("GET", "sites/[^/]+/jobs/[^/]+", "job"),
]


class NoAnswerError(requests.RequestException):
    """Something came that is no answer of Tableau, with a status that says that all is well."""


def check_answer(response: requests.Response, secrets: Secrets) -> None:
    """Check that an answer of the REST API has what was asked for.

    Raises:
        NoAnswerError: it has not; the message shows what came instead.
    """
    if not 200 <= response.status_code < 300:
        return
    path = _API.search((response.request.path_url or "").partition("?")[0])
    method, called = response.request.method, path[1] if path else ""
    needed = [name for verb, at, name in _NEEDED if verb == method and re.fullmatch(at, called)]
    body = response.content
    # Some calls answer by their status alone.
    if not body and not needed:
        return
    root = _root(body)
    missing = [
        name for name in needed if root is None or root.find(f"t:{name}", _NAMESPACE) is None
    ]
    if missing or root is None:
        wanted = (missing or ["tsResponse"])[0].rpartition(":")[2]
        raise NoAnswerError(f"the answer has no <{wanted}>, but is {secrets.excerpt(body)}")


def check_file(response: requests.Response, secrets: Secrets) -> None:
    """Check that a download is a file.

    Raises:
        NoAnswerError: it is something else; the message shows what.
    """
    if response.ok and "Content-Disposition" not in response.headers:
        body = next(response.iter_content(4096), b"")
        response.close()
        raise NoAnswerError(f"no file came, but {secrets.excerpt(body)}")


def _root(body: bytes) -> Element | None:
    try:
        root = defusedxml.ElementTree.fromstring(body, forbid_dtd=True)
    except (DefusedXmlException, LookupError, ParseError, ValueError):
        return None
    return root if root.tag == f"{{{_NAMESPACE['t']}}}tsResponse" else None


_PORTS = {"http": 80, "https": 443}


class OtherOriginError(requests.RequestException):
    """An answer sends the request on to another server, which would get its secrets."""


@dataclass(frozen=True, slots=True)
class Address:
    """The URL of the server, the only one that gets requests; without secrets or a last slash."""

    url: str

    @classmethod
    def of(cls, url: str) -> "Address":
        """Return the address at a URL.

        Raises:
            RefusedError: the URL holds credentials, or is none.
        """
        shown = f"TABLEAU_SERVER_URL ({scheme_and_host(url)})"
        # It stands in messages, records and the web UI.
        if set("@?#") & set(url):
            raise RefusedError(
                f'{shown} holds "@", "?" or "#", and may hold credentials: set it to the address '
                "alone, such as https://tableau.example.com, and sign in by the variables of a "
                "token, a user or a connected app."
            )
        with suppress(LocationParseError):
            if parse_url(url).scheme in (None, *_PORTS):
                # Checkpoints name the server by this text; a slash would make it another server.
                return cls(url.rstrip("/"))
        raise RefusedError(
            f"{shown} is not an address of the web: set it to one such as "
            "https://tableau.example.com."
        )

    def check(self, url: str | None) -> None:
        """Check that a request goes to this server; from http, it may go on to https.

        Raises:
            OtherOriginError: it goes to another one.
        """
        own, to = _origin(self.url), _origin(url or "")
        if to != own and (own[:2], to[:2]) != (("http", own[1]), ("https", own[1])):
            scheme, host, port = to
            shown = "" if port == _PORTS.get(scheme) else f":{port}"
            raise OtherOriginError(
                f"it sends requests on to {scheme}://{host}{shown}, which must not get the "
                "secrets in them. Set TABLEAU_SERVER_URL to the address where Tableau itself "
                "answers"
            )


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port; the client library takes no scheme for http."""
    parts = parse_url(url)
    scheme = parts.scheme or "http"
    return scheme, parts.host, parts.port or _PORTS.get(scheme)


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


# A time limit for a request as a whole: those of a socket begin again with every byte.


class TooSlowError(requests.Timeout):
    """A request was not over in time."""


class Deadline:
    """Ends the connection of a request that is not over in time, whatever it is waiting for.

    Each attempt has the whole time, as does each part of it that opens a connection.

    Attributes:
        passed: whether the connection was ended.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.passed = False
        self._timer: Timer | None = None
        self._socket: Any = None

    def begin(self, connection: HTTPConnection) -> None:
        """Begin an attempt on a connection."""
        self.end()
        self.passed = False
        self._timer = Timer(self.seconds, self._pass, [connection])
        self._timer.daemon = True
        self._timer.start()

    def keep(self, opened: Any) -> None:
        """Keep a socket that the answer comes from: its connection may let go of it before."""
        self._socket = opened

    def end(self) -> None:
        """The attempt is over."""
        if self._timer:
            self._timer.cancel()

    def check(self, error: BaseException | None = None) -> None:
        """Check that the connection was not ended.

        Raises:
            TooSlowError: it was.
        """
        if self.passed:
            raise TooSlowError(f"it was not done within {self.seconds:g} s") from error

    def _pass(self, connection: HTTPConnection) -> None:
        self.passed = True
        for opened in (self._socket, connection.sock):
            # In TLS within TLS, the socket is inside. Its own shutdown() would wait for the other.
            inner: Any = getattr(opened, "socket", opened)
            with suppress(OSError, TypeError):
                socket.socket.shutdown(inner, socket.SHUT_RDWR)


# The deadline of the request that this thread sends.
_CURRENT: ContextVar[Deadline] = ContextVar("deadline")


class _Timed(HTTPConnection):
    def connect(self) -> None:
        _CURRENT.get().begin(self)
        super().connect()

    def request(self, *args: Any, **settings: Any) -> None:
        _CURRENT.get().begin(self)
        super().request(*args, **settings)

    def getresponse(self) -> Any:
        _CURRENT.get().keep(self.sock)
        response = super().getresponse()
        # Before another attempt, urllib3 would read an answer to its end, which may never come.
        response.drain_conn = response.close
        return response


class _TimedTLS(_Timed, HTTPSConnection):
    pass


class TimedPool(HTTPConnectionPool):
    """Connections whose requests have a deadline."""

    ConnectionCls: Any = _Timed


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls: Any = _TimedTLS


_POOLS: Any = {"http": TimedPool, "https": _TLSPool}

_CONNECT_SECONDS = 30
# Bytes of an answer: a page of 1,000 data sources has less than two million.
_ANSWER = 8 * 10**6
_DOWNLOAD: ContextVar[int] = ContextVar("download", default=_ANSWER)


class TooMuchError(requests.RequestException):
    """An answer is larger than it may be."""


@dataclass(frozen=True, slots=True)
class Wire:
    """What all requests of a session share: where they may go, for how long, and their secrets."""

    address: Address
    times: RetryTimes
    secrets: Secrets = field(default_factory=Secrets)


@contextmanager
def downloads_up_to(size: int) -> Generator[None]:
    """Let files of so many bytes be downloaded."""
    token = _DOWNLOAD.set(size)
    try:
        yield
    finally:
        _DOWNLOAD.reset(token)


class _Body:
    """The body of an answer; what it does not define is urllib3's."""

    def __init__(self, raw: Any, deadline: Deadline, limit: int) -> None:
        self._raw, self._deadline, self._limit = raw, deadline, limit

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


_READS = frozenset({"GET"})
# The pipeline uses PATCH only for data updates, which have a RequestID.
_UPDATES = frozenset({"PATCH"})
_SAFE_TWICE = _READS | _UPDATES
_CONFLICT, _TOO_LARGE, _TOO_MANY, _UNAVAILABLE = 409, 413, 429, 503
_GATEWAY_FAILED = frozenset({502, _UNAVAILABLE, 504})
_LONGEST_WAIT = 300
# A server that upgrades to https needs one; whatever needs more leads in circles.
_MOST_REDIRECTS = 3


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


class WireAdapter(HTTPAdapter):
    """Sends the requests of a session, and reads all answers but files.

    Attributes:
        is_rest: whether they go to the REST API; otherwise they only read, and their answers are
            not checked.
    """

    def __init__(self, wire: Wire, *, retry: Retry, is_rest: bool) -> None:
        super().__init__(max_retries=retry)
        self.wire, self.is_rest = wire, is_rest

    def init_poolmanager(self, *args: Any, **settings: Any) -> None:
        """Use connections that can be ended."""
        super().init_poolmanager(*args, **settings)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **settings: Any) -> Any:
        """Use such connections to a proxy, too."""
        manager = super().proxy_manager_for(proxy, **settings)
        # SOCKS has connections of its own.
        if proxy.lower().startswith("http"):
            manager.pool_classes_by_scheme = _POOLS
        return manager

    def send(
        self, request: requests.PreparedRequest, *args: Any, **settings: Any
    ) -> requests.Response:
        """Send one request, each attempt of which has a time limit up to the end of the answer.

        Raises:
            OtherOriginError: it would go to another server.
            NoAnswerError: what came is no answer of Tableau.
            TooMuchError: the answer is larger than it may be.
            TooSlowError: it took too long.
            TooLargeError: something on the way does not let a request of this size through.
            RefusedLaterError: a repeated update was refused, but the first one may have been
                received.
        """
        wire = self.wire
        wire.address.check(request.url)
        wire.secrets.learn(request)
        only_reads = request.method in _READS and not settings.get("stream")
        is_quick = only_reads or not self.is_rest or "/auth/" in request.path_url
        deadline = Deadline(wire.times.read if is_quick else wire.times.write)
        settings["timeout"] = (_CONNECT_SECONDS, deadline.seconds)
        response = self._sent(deadline, request, *args, **settings)
        is_file = bool(settings.get("stream")) and response.ok and not response.is_redirect
        response.raw = _Body(response.raw, deadline, _DOWNLOAD.get() if is_file else _ANSWER)
        try:
            if is_file:
                check_file(response, wire.secrets)
            # Reads the body.
            elif response.content is not None and self.is_rest:
                check_answer(response, wire.secrets)
                _check_status(response)
        except BaseException:
            response.close()
            raise
        return response

    def _sent(
        self, deadline: Deadline, request: requests.PreparedRequest, *args: Any, **settings: Any
    ) -> requests.Response:
        token = _CURRENT.set(deadline)
        try:
            return super().send(request, *args, **settings)
        except BaseException as error:
            deadline.end()
            deadline.check(error)
            raise
        finally:
            _CURRENT.reset(token)


def _check_status(response: requests.Response) -> None:
    request = response.request
    # Proxies answer this in formats of their own, whose status TSC does not keep.
    if response.status_code == _TOO_LARGE:
        raise TooLargeError(request=request, response=response)
    # Some servers answer a request that they have already received with a conflict.
    refused = 400 <= response.status_code < 500 and response.status_code != _CONFLICT
    # Whether an earlier attempt was left unanswered, or answered only by a gateway.
    may_have_arrived = any(
        past.error is not None or past.status in _GATEWAY_FAILED
        for past in response.raw.retries.history
    )
    if request.method in _UPDATES and refused and may_have_arrived:
        raise RefusedLaterError(request=request, response=response)


def safe_sessions(
    wire: Wire, log: logging.Logger, hook: Callable[..., None]
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
        backoff_factor=wire.times.backoff,
        # The last answer goes on to TSC, which reads Tableau's error code from it.
        raise_on_status=False,
        log=log,
    )

    def session() -> requests.Session:
        made = requests.Session()
        made.hooks["response"].append(hook)
        for scheme in ("http://", "https://"):
            made.mount(scheme, WireAdapter(wire, retry=retry, is_rest=True))
        made.max_redirects = _MOST_REDIRECTS
        return made

    return session


class ServerClock:
    """The server's own clock: the `Date` of its newest answer, late by up to a second or so."""

    def __init__(self) -> None:
        self._heard: tuple[datetime, float] | None = None

    def hear(self, response: requests.Response, **_: object) -> None:
        """Use the `Date` of an answer; ignore an answer without a valid one."""
        try:
            date = parsedate_to_datetime(response.headers["Date"])
            # HTTP dates are always in GMT; a date that names no zone is parsed as naive.
            date = (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)
        except (KeyError, OverflowError, ValueError):
            return
        # The last year leaves no room for what comes later.
        if date.year < MAXYEAR:
            self._heard = date, monotonic()

    def now(self) -> datetime | None:
        """Return the current time in UTC; None if no answer has had a date."""
        if self._heard is None:
            return None
        # This host's clock may be wrong, or set meanwhile, so it only counts the seconds.
        date, at = self._heard
        return date + timedelta(seconds=monotonic() - at)
