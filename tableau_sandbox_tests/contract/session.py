"""Sessions on a site, their requests, and checks of the answers."""

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import uuid4
from xml.etree.ElementTree import Element, ParseError
from xml.sax.saxutils import quoteattr

import pytest
import requests
from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException

_NAMESPACE = "{http://tableau.com/api}"
_LONGEST = 200


@dataclass(frozen=True, repr=False)
class Answer:
    """The answer to one request."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def succeeds(self, *statuses: int) -> "Answer":
        """Return this answer if its status is one of `statuses`, by default 200."""
        assert self.status in (statuses or (200,)), self
        return self

    def is_refused(self, codes: str) -> None:
        """Check that this answer is a complete error with one of the codes ("400000 or 400009")."""
        if self.content[:1] == b"{":
            code = str(self.json().get("errorCode"))
        else:
            error = None if self._tree is None else self._tree.find("error")
            assert error is not None, f"not refused with {codes}: {self}"
            code = error.get("code", "")
            assert error.findtext("summary"), self
            assert error.findtext("detail"), self
        assert code in codes.split(" or "), f"{code} in place of {codes}: {self}"
        assert code.startswith(str(self.status)), self

    def meets(self, expected: str) -> None:
        """Check this answer against error codes, or against a status and paths.

        The default status is 200; a path may have a value. Examples: "404004", "400000 or 400009",
        "204", "201 project@id project@name=Seen".
        """
        if re.match(r"\d{6}", expected):
            self.is_refused(expected)
            return
        *status, paths = re.fullmatch(r"(?:(\d{3})\b)? ?(.*)", expected).groups()
        self.succeeds(*(int(each) for each in status if each))
        for path, _, value in (each.partition("=") for each in paths.split()):
            assert self[path] == (value or self[path]), f"{path} is not {value}: {self}"

    def elements(self, path: str) -> list[Element]:
        """Return all elements at a path below the root of an XML answer."""
        assert self._tree is not None, f"no XML: {self}"
        return self._tree.findall(path)

    def element(self, path: str) -> Element:
        """Return the first element at a path, which must exist."""
        found = self.elements(path)
        assert found, f"no element {path}: {self}"
        return found[0]

    def all(self, path: str) -> list[str | None]:
        """Return the attributes or the texts at a path such as projects/project@id."""
        elements, name = re.fullmatch(r"(.*?)(?:@(\w+))?", path).groups()
        return [each.get(name) if name else each.text for each in self.elements(elements)]

    def get(self, path: str) -> str | None:
        """Return the first attribute or text at a path, or None."""
        return next(iter(self.all(path)), None)

    def __getitem__(self, path: str) -> str:
        """Return the first attribute or text at a path, which must exist."""
        found = self.get(path)
        assert found is not None, f"no {path}: {self}"
        return found

    def json(self) -> Any:
        """Return the value of a JSON answer."""
        try:
            return json.loads(self.content)
        except ValueError as error:
            raise AssertionError(f"no JSON: {self}") from error

    @cached_property
    def _tree(self) -> Element | None:
        """The root of an XML answer, without namespaces in its names; None for other answers."""
        try:
            root = ElementTree.fromstring(self.content, forbid_dtd=True)
        except (ParseError, DefusedXmlException, ValueError):
            return None
        for element in root.iter():
            element.tag = element.tag.removeprefix(_NAMESPACE)
        return root

    def __repr__(self) -> str:
        """Describe the answer without its content, which may be confidential."""
        if self._tree is None:
            return f"{self.status} with {len(self.content)} bytes"
        if (error := self._tree.find("error")) is None:
            return f"{self.status} with {', '.join(child.tag for child in self._tree) or 'nothing'}"
        detail = (error.findtext("detail") or "")[:_LONGEST]
        return f"{self.status} with the error {error.get('code')}: {detail}"


# Every server accepts this version; clients use it to ask for the newest version.
OLDEST_VERSION = "2.4"
_HTTP_SECONDS = 120


def sign_in_request(site: str, *, user: str = "", **credentials: str) -> str:
    """Return the request to sign in to a site, or to impersonate the user with a LUID."""
    given = " ".join(f"{name}={quoteattr(value)}" for name, value in credentials.items())
    named = f"<user id={quoteattr(user)}/>" if user else ""
    where = f"<site contentUrl={quoteattr(site)}/>"
    return f"<tsRequest><credentials {given}>{where}{named}</credentials></tsRequest>"


# Requests, each with the expected answer in the form of `Answer.meets`.
Steps = Sequence[tuple[str, str]]


class Conversation:
    """Sends requests: each is a text of a method, a path and, for some, an element for the body.

    The text may name `values` in braces.
    """

    values: Mapping[str, Callable[[], str]]

    def ask(self, method: str, path: str, body: str | bytes = b"", **options: Any) -> Answer:
        """Send a request."""
        raise NotImplementedError

    def send(self, request: str, **more: str) -> Answer:
        """Send a method, a path, and an element for the body; all may name `values` and `more`."""
        method, path, *body = request.format(**self._made(request, more)).split(" ", 2)
        return self.ask(method, path, f"<tsRequest>{body[0]}</tsRequest>" if body else b"")

    def converse(self, *steps: tuple[str, str], **more: str) -> None:
        """Send requests, and check their answers; a name has the same value in all requests."""
        made = self._made(repr(steps), more)
        for request, expected in steps:
            self.send(request, **made).meets(expected.format(**made))

    def _made(self, text: str, more: Mapping[str, str]) -> dict[str, str]:
        named = set(re.findall(r"{(\w+)}", text)) - set(more)
        return {name: make() for name, make in self.values.items() if name in named} | {**more}


class OtherSession(Conversation):
    """The session of another user, or on another site; requests may name {site} and {user}.

    Attributes:
        token: the token of the session.
        site: the LUID of the site.
        user: the LUID of the user.
    """

    def __init__(self, server: "Session", answer: Answer):
        self._server = server
        self.token = answer["credentials@token"]
        self.site = answer["credentials/site@id"]
        self.user = answer["credentials/user@id"]
        self.values = {
            "nothing": lambda: str(uuid4()),
            "site": lambda: self.site,
            "user": lambda: self.user,
        }

    def ask(self, method: str, path: str, body: str | bytes = b"", **options: Any) -> Answer:
        """Send a request to a path below the site; a path that begins with "/" is below the API."""
        whole = path[1:] if path.startswith("/") else f"sites/{self.site}/{path}"
        return self._server.call(method, whole, body, token=self.token, **options)


class Session(OtherSession):
    """The session of the user who checks the facts.

    Requests may also name {content_url}, any {project} and any {datasource}.

    Attributes:
        content_url: the content URL of the site; empty for the default site.
        version: the newest version of the REST API that the server has.
        own: the attributes of the user's credentials.
    """

    def __init__(self, url: str, environment: Mapping[str, str]):
        """Ask for the newest version, and sign in.

        Raises:
            LookupError: if the environment has no token.
        """
        self._url, self._environment, self._http = url.rstrip("/"), environment, requests.Session()
        name, value = (environment.get(f"TABLEAU_TOKEN_{part}") for part in ("NAME", "VALUE"))
        if not name or not value:
            raise LookupError("set TABLEAU_TOKEN_NAME and TABLEAU_TOKEN_VALUE")
        self.own = {"personalAccessTokenName": name, "personalAccessTokenSecret": value}
        self.content_url = environment.get("TABLEAU_SITE", "")
        info = self.call("GET", "serverInfo", version=OLDEST_VERSION).succeeds()
        self.version = info["serverInfo/restApiVersion"]
        self.sign_in()

    def sign_in(self) -> None:
        """Open a new session."""
        answer = self.call("POST", "auth/signin", sign_in_request(self.content_url, **self.own))
        super().__init__(self, answer.succeeds())
        self.values |= {
            "content_url": lambda: self.content_url,
            "project": lambda: self._any("project"),
            "datasource": lambda: self._any("datasource"),
        }

    @contextmanager
    def sessions_of_its_own(self) -> Generator[None]:
        """Let a fact sign in and out, and open a new session afterwards.

        A personal access token has only one session: another sign-in ends the session.
        """
        try:
            yield
        finally:
            self.sign_in()

    @contextmanager
    def other(self, request: str, *, unless_refused: str = "") -> Generator[OtherSession]:
        """Sign another user in during the block.

        If the server refuses the sign-in and `unless_refused` is given, skip the fact.
        """
        answer = self.call("POST", "auth/signin", request)
        if answer.status == 401 and unless_refused:
            pytest.skip(unless_refused)
        other = OtherSession(self, answer.succeeds())
        try:
            yield other
        finally:
            self.call("POST", "auth/signout", token=other.token)

    def variables(self, what: str, *names: str) -> list[str]:
        """Return the values of variables; skip the fact if the environment lacks one."""
        if missing := [name for name in names if not self._environment.get(name)]:
            pytest.skip(f"not tried without a {what}: set {', '.join(missing)}")
        return [self._environment[name] for name in names]

    def call(
        self,
        method: str,
        path: str,
        body: str | bytes | Iterator[bytes] = b"",
        *,
        token: str = "",
        version: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request to a path below `/api/{version}/`, in a session only if `token` is given.

        If the body is an iterator, it is sent in chunks.
        """
        answer = self._http.request(
            method,
            f"{self._url}/api/{version or self.version}/{path}",
            data=body.encode() if isinstance(body, str) else body,
            headers={**({"X-Tableau-Auth": token} if token else {}), **(headers or {})},
            timeout=_HTTP_SECONDS,
            allow_redirects=False,
        )
        return Answer(answer.status_code, answer.headers, answer.content)

    def _any(self, kind: str) -> str:
        found = self.ask("GET", f"{kind}s?pageSize=1").succeeds().get(f"{kind}s/{kind}@id")
        return found or pytest.skip(f"the site has no {kind}")

    def needs_version(self, version: str) -> None:
        """Skip the fact if the server's REST API is older than a version."""
        has, needs = ([*map(int, each.split("."))] for each in (self.version, version))
        if has < needs:
            pytest.skip(f"the server's REST API is older than {version}")
