"""Make HTTP sessions with one server; check where requests go, and what the answers contain."""

import html
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import monotonic
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import ParseError

import defusedxml.ElementTree
import requests
from defusedxml.common import DefusedXmlException
from requests.adapters import HTTPAdapter
from urllib3.exceptions import LocationParseError, ReadTimeoutError
from urllib3.util import Retry, parse_url

from tableau_pipeline.errors import SettingError
from tableau_pipeline.objects.stores import scheme_and_host
from tableau_pipeline.publishing.deadlines import POOLS, LimitedBody, largest_body, too_late
from tableau_pipeline.publishing.errors import (
    IS_IT_RIGHT,
    BadAnswerError,
    TooBusyError,
    TooLargeError,
)
from tableau_pipeline.publishing.retries import (
    GATEWAY_FAILED,
    PAUSE,
    SAFE_TWICE,
    UPDATE,
    RequestBudget,
    RetryTimes,
    SafeRetry,
)


def server_address(url: str) -> str:
    """Return the URL of the server without a trailing slash.

    Raises:
        RefusedError: the URL contains credentials, lacks http:// or https://, or is invalid.
    """
    # Refuse credentials, because messages, records and the web UI show the URL.
    if not set("@?#") & set(url):
        with suppress(LocationParseError):
            parts = parse_url(url)
            if parts.scheme in _PORTS and parts.host:
                # Remove the slash: checkpoints record this text, and a different text means another
                # server.
                scheme, _, place = url.partition("://")
                # Use lower case, because TSC mistakes HTTPS in capitals for the name of a host.
                return f"{scheme.lower()}://{place}".rstrip("/")
    raise SettingError(
        f"TABLEAU_SERVER_URL ({scheme_and_host(url)}) is not the address of a server alone: set it "
        'to one such as https://tableau.example.com, with https:// or http://, without "@", "?" '
        'and "#", and sign in by the variables of a token, a user or a connected app.',
    )


_PORTS = {"http": 80, "https": 443}


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Return the scheme, the host and the port of a URL."""
    parts = parse_url(url)
    scheme = parts.scheme or ""
    return scheme, parts.host, parts.port or _PORTS.get(scheme)


# Values to hide in the body of an answer that is not Tableau's. A value may be the session of a
# proxy, or a new token.
_VALUE = re.compile(r"""([=:]\s*)("[^"]*"?|'[^']*'?)""")
_LONGEST, _EXCERPT = 1500, 160
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wire:
    """The state that all requests of a session share.

    Attributes:
        url: the URL of the server. No request may go to another server.
        times: the time limits of requests, and the pauses before retries.
        log: the logger for a message about each repeated request and each wait.
        secrets: the secrets that were sent, which the server may quote in its answers.
        budget: the number of requests that were sent, and the number that may be sent.
    """

    url: str
    times: RetryTimes = field(default_factory=RetryTimes)
    log: logging.Logger = _LOG
    secrets: set[str] = field(default_factory=set, repr=False)
    budget: RequestBudget = field(default_factory=RequestBudget)

    def check(self, url: str | None) -> None:
        """Check that a request goes to this server; allow a change from http to https.

        Raises:
            BadAnswerError: the request goes to another server, which would get the secrets in the
                request.
        """
        own, to = _origin(self.url), _origin(url or "")
        if to != own and (own[:2], to[:2]) != (("http", own[1]), ("https", own[1])):
            scheme, host, port = to
            shown = "" if port == _PORTS.get(scheme) else f":{port}"
            raise BadAnswerError(
                f"does not answer itself: it sends requests on to {scheme}://{host}{shown}, which "
                "must not get the secrets in them. Set TABLEAU_SERVER_URL to the address where "
                "Tableau itself answers."
            )

    def learn(self, secret: str | None) -> None:
        """Remember a secret that a request is about to send."""
        if secret:
            self.secrets.update({secret, html.escape(secret), quote(secret, safe="")})

    def hide(self, text: str) -> str:
        """Return a text without the secrets."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def message(self, text: str) -> str:
        """Return a message of the server without the secrets; shorten a long message."""
        hidden = self.hide(text)
        return hidden if len(hidden) <= _LONGEST else f"{hidden[:_LONGEST]}..."

    def excerpt(self, body: bytes) -> str:
        """Return the beginning of the body of an answer that is not Tableau's, without secrets."""
        if not body:
            return "nothing"
        # Search more text than is shown, because a secret may begin in the shown text and end after
        # it.
        text = self.hide(body[: 2**16].decode("utf-8", "replace"))
        shown = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        shown = _VALUE.sub(r"\1...", shown)
        return repr(shown if len(shown) <= _EXCERPT else f"{shown[:_EXCERPT]}...")


# An error in Tableau's own format, with a code of six digits.
_TABLEAU_ERROR = re.compile(rb"""<(\w+:)?error\b[^>]*\bcode=["'][0-9]{6}["']""")
# The elements that the answer to each request must contain. If such an element is missing, TSC
# assumes an empty list, or fails.
_NAMESPACE = {"": "http://tableau.com/api"}
_ITEM = "sites/[^/]+/datasources/[^/]+"
_NEEDED = [
    ("GET", "serverInfo", "serverInfo/restApiVersion"),
    ("POST", "auth/signin", "credentials/site"),
    ("POST", "auth/signin", "credentials/user"),
    ("GET", "sites/[^/]+/(projects|datasources|jobs|groups|users)", "pagination"),
    ("POST", "sites/[^/]+/projects", "project"),
    ("GET", _ITEM, "datasource"),
    ("PUT", _ITEM, "datasource"),
    ("GET", f"{_ITEM}/permissions", "permissions"),
    ("PUT", f"{_ITEM}/permissions", "permissions"),
    ("GET", "sites/[^/]+/dataQualityWarnings/.*", "dataQualityWarningList"),
    ("GET", f"{_ITEM}/revisions", "pagination"),
    ("PUT", f"{_ITEM}/tags", "tags"),
    ("POST", "sites/[^/]+/fileUploads", "fileUpload"),
    ("PUT", "sites/[^/]+/fileUploads/[^/]+", "fileUpload"),
    ("GET", "sites/[^/]+/jobs/[^/]+", "job"),
]


class WireAdapter(HTTPAdapter):
    """Sends the requests of a session, and reads all answers except downloaded files.

    Attributes:
        is_rest: whether the requests go to the REST API. Other requests only read, and their
            answers are not checked.
    """

    def __init__(self, wire: Wire, *, retry: Retry, is_rest: bool) -> None:
        super().__init__(max_retries=retry)
        self.wire, self.is_rest = wire, is_rest

    def init_poolmanager(self, *args: Any, **settings: Any) -> None:
        """Use connections that limit the time of answers."""
        super().init_poolmanager(*args, **settings)
        self.poolmanager.pool_classes_by_scheme = POOLS

    def proxy_manager_for(self, proxy: str, **settings: Any) -> Any:
        """Use connections that limit the time of answers, also for a proxy."""
        manager = super().proxy_manager_for(proxy, **settings)
        # Keep the special connections to SOCKS proxies.
        if proxy.lower().startswith("http"):
            manager.pool_classes_by_scheme = POOLS
        return manager

    def close(self) -> None:
        """Close all connections, because urllib3 would leave them to the garbage collector."""
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118 - urllib3 forbids iterating over them
                manager.pools[key].close()
        super().close()

    def send(
        self, request: requests.PreparedRequest, *args: Any, **settings: Any
    ) -> requests.Response:
        """Send a request; each attempt has a time limit, which includes reading the whole answer.

        Raises:
            BadAnswerError: the request would go to another server, or the server answered 503, or
                the server refused a repeated update. Or the answer does not come from Tableau, is
                too large or comes too late.
            TooBusyError: the answer is 429, but not in Tableau's format, so it comes from a gateway
                that turned the request away.
            TooLargeError: the server or a proxy does not let a request of this size through.
            BudgetSpentError: the session may send no more requests.
        """
        wire, streams = self.wire, bool(settings.get("stream"))
        wire.check(request.url)
        wire.learn(str(request.headers.get("X-Tableau-Auth", "")))
        only_reads = not self.is_rest or (request.method == "GET" and not streams)
        is_quick = only_reads or "/auth/" in request.path_url
        seconds = wire.times.read if is_quick else wire.times.write
        settings["timeout"] = seconds
        PAUSE.wait(wire.url, wire.log)
        wire.budget.take(to_sign_out=request.path_url.endswith("/auth/signout"))
        try:
            response = super().send(request, *args, **settings)
        except requests.RequestException as error:
            cause: Any = error.args[0] if error.args else None
            # After several attempts, `cause.reason` is the error of the last attempt.
            if isinstance(getattr(cause, "reason", cause), ReadTimeoutError):
                raise too_late(seconds) from error
            raise
        is_file = streams and response.ok and not response.is_redirect
        limit = largest_body(is_file=is_file)
        response.raw = LimitedBody(response.raw, limit=limit, seconds=seconds)
        try:
            if is_file:
                self._check_file(response)
            # Reading `content` reads the whole body.
            elif response.content is not None and self.is_rest:
                self._check_answer(response)
        except BaseException:
            response.close()
            raise
        return response

    def _check_file(self, response: requests.Response) -> None:
        if "Content-Disposition" not in response.headers:
            body = next(response.iter_content(4096), b"")
            raise self._no_answer(f"no file came, but {self.wire.excerpt(body)}")
        # Set the type of a file: TSC would read an answer of any other type completely, to log it
        # as text.
        response.headers["Content-Type"] = "application/octet-stream"

    def _check_answer(self, response: requests.Response) -> None:
        request, status = response.request, response.status_code
        # True if an earlier attempt got no answer, or only the answer of a gateway.
        may_have_arrived = any(
            past.error is not None or past.status in GATEWAY_FAILED
            for past in response.raw.retries.history
        )
        refused = 400 <= status < 500
        if request.method == UPDATE and refused and may_have_arrived:
            raise BadAnswerError(
                f"did not answer, and answered {status} when asked again. It may have received the "
                "first request; the next run finds out what it did."
            )
        # Check the status here, because TSC does not keep it if a proxy answers in its own format.
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise TooLargeError(
                "lets no requests of this size through, or a proxy in front of it does not. Raise "
                "the limit, or set TSC_CHUNK_SIZE_MB to less than it lets through."
            )
        if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            raise requests.exceptions.ProxyError("407 Proxy Authentication Required")
        # Handle 429 and 503 here, because gateways send them in HTML or JSON. Handle even a 503
        # from Tableau, because TSC would drop the message.
        if status == HTTPStatus.TOO_MANY_REQUESTS and not _TABLEAU_ERROR.search(response.content):
            raise TooBusyError("is too busy (429): run again later, or less often.")
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            unknown = "" if request.method == "GET" else ". The next run finds out what it did"
            raise BadAnswerError(f"is too busy (503): run again later, or less often{unknown}.")
        if 200 <= status < 300:
            self._check_content(str(request.method), request.path_url, response.content)

    def _check_content(self, method: str, path: str, body: bytes) -> None:
        """Check that an answer contains the elements that its request needs."""
        called = re.sub(r"^.*?/api/[^/]+/|\?.*", "", path)
        needed = [name for verb, at, name in _NEEDED if verb == method and re.fullmatch(at, called)]
        # Accept an empty body, because the answers to some calls have only a status.
        if not body and not needed:
            return
        missing = ["tsResponse"]
        with suppress(DefusedXmlException, LookupError, ParseError, ValueError):
            root = defusedxml.ElementTree.fromstring(body, forbid_dtd=True)
            if root.tag == "{http://tableau.com/api}tsResponse":
                missing = [name for name in needed if root.find(name, _NAMESPACE) is None]
        if missing:
            wanted = missing[0].rpartition("/")[2]
            raise self._no_answer(f"the answer has no <{wanted}>, but is {self.wire.excerpt(body)}")

    def _no_answer(self, came: str) -> BadAnswerError:
        return BadAnswerError(f"does not answer like a Tableau Server: {came}. {IS_IT_RIGHT}")


def rest_session(wire: Wire, hear: Callable[..., object]) -> requests.Session:
    """Return an HTTP session for TSC; the session passes each answer to `hear`."""
    retry = SafeRetry(
        total=None,
        connect=3,
        read=3,
        status=4,
        other=0,
        allowed_methods=SAFE_TWICE,
        backoff_factor=wire.times.backoff,
        # Pass the last answer to TSC, which reads Tableau's error code in the answer.
        raise_on_status=False,
        log=wire.log,
        server=wire.url,
        budget=wire.budget,
    )
    session = requests.Session()
    session.hooks["response"].append(hear)
    for scheme in _PORTS:
        session.mount(f"{scheme}://", WireAdapter(wire, retry=retry, is_rest=True))
    return session


class ServerClock:
    """The server's clock, up to a second slow: the `Date` of an answer has only whole seconds."""

    def __init__(self) -> None:
        self._heard: tuple[datetime, float] | None = None

    def hear(self, response: requests.Response, **_: object) -> None:
        """Use the `Date` of an answer; ignore an answer without a valid `Date`."""
        try:
            date = parsedate_to_datetime(response.headers["Date"])
            # Add the zone to a date without a zone, because HTTP dates are always in GMT.
            date = (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)
        except (KeyError, OverflowError, ValueError):
            return
        # Ignore dates in the last year that Python knows, because adding time would overflow.
        if date.year < MAXYEAR:
            self._heard = date, monotonic()

    def now(self) -> datetime | None:
        """Return the current time in UTC; None before the first answer with a date."""
        if self._heard is None:
            return None
        # Use this host's monotonic clock to count seconds, because the host's time of day may be
        # wrong, or may be set meanwhile.
        date, at = self._heard
        return date + timedelta(seconds=monotonic() - at)
