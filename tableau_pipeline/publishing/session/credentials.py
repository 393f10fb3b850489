"""The three ways to sign in to Tableau. A repr never shows a secret.

`remedy` is what to check if the server rejects the credentials.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import ClassVar
from uuid import uuid4

import jwt
import tableauserverclient as TSC

# The pipeline's calls, in the terms of Tableau's "Access Scopes for Connected Apps". A wildcard
# stands where it is not certain which scope a call needs: to cancel a job, to remove a tag.
_SCOPES = [
    "tableau:content:read",
    "tableau:datasources:create",
    "tableau:datasources:download",
    "tableau:datasources:update",
    "tableau:datasource_tags:*",
    "tableau:file_uploads:create",
    "tableau:hyper_data:update",
    "tableau:jobs:*",
    "tableau:projects:create",
]
# Not asked for without need: a server that does not know it may refuse the token.
_COUNTING_SCOPE = "tableau:viz_data_service:read"
# Tableau refuses tokens that live longer than 10 minutes; the session outlives the token.
_TOKEN_LIFETIME = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class PersonalAccessToken:
    """A personal access token; it allows one session, and a second sign-in ends the first."""

    name: str
    value: str = field(repr=False)
    remedy: ClassVar = (
        "Check TABLEAU_TOKEN_NAME and TABLEAU_TOKEN_VALUE; a token ends after 15 days without use, "
        "and a year after it was made: make a new one under My Account Settings"
    )

    @property
    def described(self) -> str:
        """Who signs in, for messages."""
        return f'with the token "{self.name}"'

    def for_site(self, site: str) -> TSC.PersonalAccessTokenAuth:
        """Return TSC's credentials."""
        return TSC.PersonalAccessTokenAuth(self.name, self.value, site_id=site)


@dataclass(frozen=True, slots=True)
class Password:
    """The password of a user without multi-factor authentication."""

    username: str
    password: str = field(repr=False)
    remedy: ClassVar = (
        "Check TABLEAU_USERNAME and TABLEAU_PASSWORD; a user with multi-factor authentication "
        "needs a token instead"
    )

    @property
    def described(self) -> str:
        """Who signs in, for messages."""
        return f'as "{self.username}" with a password'

    def for_site(self, site: str) -> TSC.TableauAuth:
        """Return TSC's credentials."""
        return TSC.TableauAuth(self.username, self.password, site_id=site)


@dataclass(frozen=True, slots=True)
class ConnectedApp:
    """Direct trust: Tableau accepts a token that the connected app signs for `username`.

    Attributes:
        counts: whether the session may also let the server count rows.
    """

    username: str
    client_id: str
    secret_id: str
    secret_value: str = field(repr=False)
    counts: bool = False
    remedy: ClassVar = (
        "Check TABLEAU_USERNAME and the three TABLEAU_CONNECTED_APP_* variables, whether the "
        "connected app is enabled, and the clock of this host"
    )

    @property
    def described(self) -> str:
        """Who signs in, for messages."""
        return f'as "{self.username}" by the connected app {self.client_id}'

    def for_site(self, site: str) -> TSC.JWTAuth:
        """Return TSC's credentials."""
        return TSC.JWTAuth(self._token(), site_id=site)

    def _token(self) -> str:
        claims = {
            "iss": self.client_id,
            "exp": datetime.now(UTC) + _TOKEN_LIFETIME,
            # Tableau refuses a token whose id it has seen before.
            "jti": str(uuid4()),
            "aud": "tableau",
            "sub": self.username,
            "scp": [*_SCOPES, *([_COUNTING_SCOPE] if self.counts else [])],
        }
        headers = {"kid": self.secret_id, "iss": self.client_id}
        return jwt.encode(claims, self.secret_value, algorithm="HS256", headers=headers)


Credentials = PersonalAccessToken | Password | ConnectedApp


def no_entry(credentials: Credentials, site: str) -> str:
    """Return the remedies for a rejected sign-in: the server does not show what is wrong."""
    if not site:
        return f"{credentials.remedy}. It used the default site, because TABLEAU_SITE is not set"
    return (
        f'Does the site "{site}" exist, with this user on it? TABLEAU_SITE is its name in the URL, '
        f"after /site/, and empty for the default site of a Tableau Server. {credentials.remedy}"
    )
