"""A site of a server, as facts see it: raw requests, signed in or not."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import requests

from tableau_sandbox.facts.answer import Answer, Deviation, NotShown, attribute
from tableau_sandbox.facts.credentials import Credentials, Others

# Served by every server: clients ask here for the version that they may use.
OLDEST_VERSION = "2.4"
_HTTP_SECONDS = 120


@dataclass(frozen=True)
class Guest:
    """Somebody else's session."""

    scene: "Scene"
    token: str = field(repr=False)
    site: str
    user: str

    def ask(
        self,
        method: str,
        path: str,
        body: str | bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request to a path of the site, in this session."""
        whole = f"sites/{self.site}/{path}"
        return self.scene.call(method, whole, body, token=self.token, headers=headers)


class Scene:
    """A session on a site.

    Attributes:
        credentials: of the session.
        others: who else may sign in.
        product: the version of the server, for reports.
        version: the newest version of the REST API that the server has.
        token: of the session.
        site: the LUID of the site.
        user: the LUID of the user.
    """

    def __init__(self, url: str, credentials: Credentials, others: Others | None = None):
        """Ask for the versions and sign in.

        Raises:
            Deviation: the server does not answer as clients need it from the start.
            requests.RequestException: it cannot be reached.
        """
        self.credentials = credentials
        self.others = others or Others()
        self._url = url.rstrip("/")
        self._http = requests.Session()
        self.token = self.site = self.user = ""
        info = self.call("GET", "serverInfo", version=OLDEST_VERSION).succeeds(200)
        self.product = info.element("serverInfo/productVersion").text or ""
        self.version = info.element("serverInfo/restApiVersion").text or ""
        self.sign_in()

    def sign_in(self) -> None:
        """Open a new session.

        Raises:
            Deviation: the sign-in is refused.
        """
        answer = self.call("POST", "auth/signin", self.credentials.as_request()).succeeds(200)
        self.token = attribute(answer.element("credentials"), "token")
        self.site = attribute(answer.element("credentials/site"), "id")
        self.user = attribute(answer.element("credentials/user"), "id")

    @contextmanager
    def sessions_of_its_own(self) -> Generator[None]:
        """Let a fact sign in and out; then open a new session for the scene.

        A personal access token has one session at a time: another sign-in ends it.
        """
        try:
            yield
        finally:
            self.sign_in()

    @contextmanager
    def guest(self, request: str) -> Generator[Guest]:
        """Sign somebody else in within the block.

        Raises:
            Deviation: the sign-in is refused.
        """
        answer = self.call("POST", "auth/signin", request).succeeds(200)
        guest = Guest(
            self,
            attribute(answer.element("credentials"), "token"),
            attribute(answer.element("credentials/site"), "id"),
            attribute(answer.element("credentials/user"), "id"),
        )
        try:
            yield guest
        finally:
            self.call("POST", "auth/signout", token=guest.token)

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
        """Send a request to a path below `/api/{version}/`, without a session unless given.

        A body in pieces is sent in chunks.
        """
        sent = dict(headers or {})
        if token:
            sent["X-Tableau-Auth"] = token
        answer = self._http.request(
            method,
            f"{self._url}/api/{version or self.version}/{path}",
            data=body.encode() if isinstance(body, str) else body,
            headers=sent,
            timeout=_HTTP_SECONDS,
            allow_redirects=False,
        )
        return Answer(answer.status_code, answer.headers, answer.content)

    def ask(
        self,
        method: str,
        path: str,
        body: str | bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request to a path of the site, in the session."""
        whole = f"sites/{self.site}/{path}"
        return self.call(method, whole, body, token=self.token, headers=headers)

    def first(self, kind: str) -> str:
        """Return the LUID of some data source, project or other item of the site.

        Raises:
            NotShown: there is none.
        """
        answer = self.ask("GET", f"{kind}s?pageSize=1").succeeds(200)
        found = answer.elements(f"{kind}s/{kind}")
        if not found:
            raise NotShown(f"the site has no {kind}")
        return attribute(found[0], "id")

    def needs_version(self, version: str) -> None:
        """Leave a fact to newer servers.

        Raises:
            NotShown: the REST API of this server is older.
        """
        if _numbers(self.version) < _numbers(version):
            raise NotShown(f"the server's REST API is older than {version}")


def _numbers(version: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in version.split("."))
    except ValueError as error:
        raise Deviation("a version such as 3.27", version) from error
