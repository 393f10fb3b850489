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

    def for_site(self, site: str) -> TSC.PersonalAccessTokenAuth:
        """What TSC signs in with."""
        return TSC.PersonalAccessTokenAuth(self.name, self.value, site_id=site)


@dataclass(frozen=True, slots=True)
class Password:
    """Of a user without multi-factor authentication."""

    username: str
    password: str = field(repr=False)

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
