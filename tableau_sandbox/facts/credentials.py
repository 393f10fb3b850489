"""How facts sign in: as the user who checks, and as others whom a site may have."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from xml.sax.saxutils import quoteattr

import jwt

from tableau_sandbox.facts.answer import NotShown

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
        """Return the connected app.

        Raises:
            NotShown: the environment names none.
        """
        client_id, secret_id, secret_value, user = self._values("connected app", *APP, USER)
        return App(
            client_id=client_id,
            secret_id=secret_id,
            secret_value=secret_value,
            user=user,
            site=site,
        )

    def password(self) -> tuple[str, str]:
        """Return a name and its password.

        Raises:
            NotShown: the environment names none.
        """
        name, password = self._values("password", USER, PASSWORD)
        return name, password

    def other_site(self) -> str:
        """Return the content URL of another site, to which the user belongs, too.

        Raises:
            NotShown: the environment names none.
        """
        (site,) = self._values("other site", OTHER_SITE)
        return site

    def viewer(self, site: str) -> Credentials:
        """Return the token of a user with the site role Viewer.

        Raises:
            NotShown: the environment names none.
        """
        name, value = self._values("Viewer", *VIEWER)
        return Credentials(token_name=name, token_value=value, site=site)

    def creator(self, site: str) -> Credentials:
        """Return the token of a user who may publish, but neither leads the project nor the site.

        Raises:
            NotShown: the environment names none.
        """
        name, value = self._values("Creator", *CREATOR)
        return Credentials(token_name=name, token_value=value, site=site)

    def _values(self, what: str, *names: str) -> list[str]:
        missing = [name for name in names if not self.environment.get(name)]
        if missing:
            raise NotShown(f"not tried without a {what}: set {', '.join(missing)}")
        return [self.environment[name] for name in names]
