"""The three ways to sign in to Tableau. Secrets never show in a repr."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import jwt
import tableauserverclient as TSC

# What the pipeline does, in the terms of Tableau's "Access Scopes for Connected Apps".
_SCOPES = [
    "tableau:content:read",
    "tableau:datasources:*",
    "tableau:datasource_tags:update",
    "tableau:file_uploads:create",
    "tableau:hyper_data:update",
    "tableau:jobs:read",
    "tableau:projects:*",
]
# Tableau refuses tokens that live longer than 10 minutes; the session outlives the token.
_TOKEN_LIFETIME = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class PersonalAccessToken:
    """One token has one session: a second sign-in ends the first."""

    name: str
    value: str = field(repr=False)

    @property
    def described(self) -> str:
        """As whom it signs in."""
        return f'with the token "{self.name}"'

    @property
    def remedy(self) -> str:
        """What to look at when the server does not let it in."""
        return (
            "Check TABLEAU_TOKEN_NAME and TABLEAU_TOKEN_VALUE; a token ends after 15 days without "
            "use, and a year after it was made: make a new one under My Account Settings"
        )

    def for_site(self, site: str) -> TSC.PersonalAccessTokenAuth:
        """What TSC signs in with."""
        return TSC.PersonalAccessTokenAuth(self.name, self.value, site_id=site)


@dataclass(frozen=True, slots=True)
class Password:
    """Of a user without multi-factor authentication."""

    username: str
    password: str = field(repr=False)

    @property
    def described(self) -> str:
        """As whom it signs in."""
        return f'as "{self.username}" with a password'

    @property
    def remedy(self) -> str:
        """What to look at when the server does not let it in."""
        return (
            "Check TABLEAU_USERNAME and TABLEAU_PASSWORD; a user with multi-factor authentication "
            "needs a token instead"
        )

    def for_site(self, site: str) -> TSC.TableauAuth:
        """What TSC signs in with."""
        return TSC.TableauAuth(self.username, self.password, site_id=site)


@dataclass(frozen=True, slots=True)
class ConnectedApp:
    """Direct trust: Tableau believes a token that we sign for `username`."""

    username: str
    client_id: str
    secret_id: str
    secret_value: str = field(repr=False)

    @property
    def described(self) -> str:
        """As whom it signs in."""
        return f'as "{self.username}" by the connected app {self.client_id}'

    @property
    def remedy(self) -> str:
        """What to look at when the server does not let it in."""
        return (
            "Check TABLEAU_USERNAME and the three TABLEAU_CONNECTED_APP_* variables, whether the "
            "connected app is enabled, and the clock of this host"
        )

    def for_site(self, site: str) -> TSC.JWTAuth:
        """What TSC signs in with."""
        return TSC.JWTAuth(self._token(), site_id=site)

    def _token(self) -> str:
        claims = {
            "iss": self.client_id,
            "exp": datetime.now(UTC) + _TOKEN_LIFETIME,
            "jti": str(uuid4()),
            "aud": "tableau",
            "sub": self.username,
            "scp": _SCOPES,
        }
        headers = {"kid": self.secret_id, "iss": self.client_id}
        return jwt.encode(claims, self.secret_value, algorithm="HS256", headers=headers)


Credentials = PersonalAccessToken | Password | ConnectedApp


def no_entry(credentials: Credentials, site: str) -> str:
    """What to do if the server lets nobody in: it does not say which of the two is wrong."""
    if not site:
        return f"{credentials.remedy}. The default site was asked for: TABLEAU_SITE is not set"
    return (
        f'Is there a site "{site}", and this user on it? TABLEAU_SITE is its name in the URL, '
        f"after /site/, and empty for the default site of a Tableau Server. {credentials.remedy}"
    )
