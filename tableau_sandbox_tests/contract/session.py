"""Sessions on a site: raw requests, signed in as the user who checks, as another, or not at all."""

import re
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from xml.sax.saxutils import quoteattr

import jwt
import pytest
import requests

from tableau_sandbox_tests.contract.answer import Answer, attribute

# Served by every server: clients ask here for the version that they may use.
OLDEST_VERSION = "2.4"
_HTTP_SECONDS = 120
APP = tuple(f"TABLEAU_CONNECTED_APP_{part}" for part in ("CLIENT_ID", "SECRET_ID", "SECRET_VALUE"))
USER, PASSWORD = "TABLEAU_USERNAME", "TABLEAU_PASSWORD"
OTHER_SITE = "TABLEAU_OTHER_SITE"
VIEWER = "TABLEAU_VIEWER_TOKEN_NAME", "TABLEAU_VIEWER_TOKEN_VALUE"
CREATOR = "TABLEAU_CREATOR_TOKEN_NAME", "TABLEAU_CREATOR_TOKEN_VALUE"


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """A personal access token.

    Attributes:
        token_name: its name.
        token_value: its secret.
        site: the content URL of the site; empty for the default site.
    """

    token_name: str
    token_value: str = field(repr=False)
    site: str = ""

    def as_request(self, *, user: str = "") -> str:
        """Return the body of a sign-in, in place of the user with a LUID if one is given."""
        named = f"<user id={quoteattr(user)}/>" if user else ""
        return (
            f"<tsRequest><credentials personalAccessTokenName={quoteattr(self.token_name)}"
            f" personalAccessTokenSecret={quoteattr(self.token_value)}>"
            f"<site contentUrl={quoteattr(self.site)}/>{named}</credentials></tsRequest>"
        )


@dataclass(frozen=True, kw_only=True)
class App:
    """A connected app that signs a user in.

    Attributes:
        client_id: its identifier.
        secret_id: that of its secret.
        secret_value: the secret.
        user: the name of the user.
        site: the content URL of the site.
    """

    client_id: str
    secret_id: str
    secret_value: str = field(repr=False)
    user: str
    site: str = ""

    def as_request(self, *scopes: str, lasts: timedelta = timedelta(minutes=5)) -> str:
        """Return the body of a sign-in with a new token that has these scopes."""
        claims = {
            "iss": self.client_id,
            "sub": self.user,
            "aud": "tableau",
            "jti": str(uuid.uuid4()),
            "exp": datetime.now(UTC) + lasts,
            "scp": scopes,
        }
        headers = {"kid": self.secret_id, "iss": self.client_id}
        token = jwt.encode(claims, self.secret_value, algorithm="HS256", headers=headers)
        return (
            f'<tsRequest><credentials jwt="{token}" isUat="false">'
            f"<site contentUrl={quoteattr(self.site)}/></credentials></tsRequest>"
        )


@dataclass(frozen=True)
class Others:
    """What the environment tells beyond the token of the user who checks."""

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def app(self, site: str) -> App:
        """Return the connected app."""
        client_id, secret_id, secret_value, user = self._values("connected app", *APP, USER)
        return App(
            client_id=client_id,
            secret_id=secret_id,
            secret_value=secret_value,
            user=user,
            site=site,
        )

    def password(self) -> tuple[str, str]:
        """Return a name and its password."""
        name, password = self._values("password", USER, PASSWORD)
        return name, password

    def other_site(self) -> str:
        """Return the content URL of another site, to which the user belongs, too."""
        (site,) = self._values("other site", OTHER_SITE)
        return site

    def viewer(self, site: str) -> Credentials:
        """Return the token of a user with the site role Viewer."""
        name, value = self._values("Viewer", *VIEWER)
        return Credentials(token_name=name, token_value=value, site=site)

    def creator(self, site: str) -> Credentials:
        """Return the token of a user who may publish, but leads neither project nor site."""
        name, value = self._values("Creator", *CREATOR)
        return Credentials(token_name=name, token_value=value, site=site)

    def _values(self, what: str, *names: str) -> list[str]:
        missing = [name for name in names if not self.environment.get(name)]
        if missing:
            pytest.skip(f"not tried without a {what}: set {', '.join(missing)}")
        return [self.environment[name] for name in names]


@dataclass(frozen=True)
class OtherSession:
    """Somebody else's session."""

    session: "Session"
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
        return self.session.call(method, whole, body, token=self.token, headers=headers)


class Session:
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
        """Ask for the versions and sign in."""
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
        """Open a new session."""
        answer = self.call("POST", "auth/signin", self.credentials.as_request()).succeeds(200)
        self.token = attribute(answer.element("credentials"), "token")
        self.site = attribute(answer.element("credentials/site"), "id")
        self.user = attribute(answer.element("credentials/user"), "id")

    @contextmanager
    def sessions_of_its_own(self) -> Generator[None]:
        """Let a fact sign in and out; then open a new session for the session.

        A personal access token has one session at a time: another sign-in ends it.
        """
        try:
            yield
        finally:
            self.sign_in()

    @contextmanager
    def other(self, request: str, *, unless_refused: str = "") -> Generator[OtherSession]:
        """Sign another user in within the block; skip the fact if told why, and it is refused."""
        answer = self.call("POST", "auth/signin", request)
        if answer.status == 401 and unless_refused:
            pytest.skip(unless_refused)
        answer.succeeds(200)
        other = OtherSession(
            self,
            attribute(answer.element("credentials"), "token"),
            attribute(answer.element("credentials/site"), "id"),
            attribute(answer.element("credentials/user"), "id"),
        )
        try:
            yield other
        finally:
            self.call("POST", "auth/signout", token=other.token)

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
        """Return the LUID of some data source, project or other item of the site."""
        answer = self.ask("GET", f"{kind}s?pageSize=1").succeeds(200)
        found = answer.elements(f"{kind}s/{kind}")
        if not found:
            pytest.skip(f"the site has no {kind}")
        return attribute(found[0], "id")

    def needs_version(self, version: str) -> None:
        """Leave a fact to newer servers."""
        if _numbers(self.version) < _numbers(version):
            pytest.skip(f"the server's REST API is older than {version}")


def _numbers(version: str) -> tuple[int, ...]:
    assert re.fullmatch(r"\d+\.\d+", version), version
    return tuple(int(part) for part in version.split("."))
