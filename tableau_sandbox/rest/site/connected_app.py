"""Sign in with a JSON web token that a connected app has signed (direct trust)."""

from collections.abc import Mapping, Sequence
from typing import Any

import jwt

from tableau_sandbox.options import ConnectedApp
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts
from tableau_sandbox.store.records import User

_LONGEST_SECONDS = 600
_CLAIMS = ("iss", "exp", "jti", "aud", "sub", "scp")


class UntrustedTokenError(ValueError):
    """The token is not accepted; the message states why, without repeating the token."""


def user_of_token(services: Services, token: str) -> tuple[User, Sequence[str]]:
    """Return the user for whom a connected app has signed this token, and the token's scopes.

    The token is valid for one sign-in.

    Raises:
        UntrustedTokenError: the token is not accepted.
    """
    claims = _verified_claims(services, token)
    user = accounts.user_of_name(services.database, _text(claims, "sub"))
    if user is None:
        raise UntrustedTokenError("the claim 'sub' names no user")
    # This comes last, so that a token which is refused for another reason is not used up.
    first_use = accounts.use_token_once(
        services.database, _text(claims, "jti"), expires_at=claims["exp"]
    )
    if not first_use:
        raise UntrustedTokenError("the claim 'jti' was used before")
    return user, claims["scp"]


def _verified_claims(services: Services, token: str) -> Mapping[str, Any]:
    try:
        app = _app(services, jwt.get_unverified_header(token))
        claims = jwt.decode(
            token,
            app.secret_value,
            algorithms=["HS256"],
            audience="tableau",
            issuer=app.client_id,
            # Times are compared with the sandbox's own clock.
            options={
                "require": list(_CLAIMS),
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
            },
        )
    except jwt.InvalidTokenError as error:
        raise UntrustedTokenError(str(error)) from error
    _check_lifetime(claims["exp"], now=services.now_seconds())
    scopes = claims["scp"]
    if not (isinstance(scopes, list) and scopes and all(isinstance(s, str) for s in scopes)):
        raise UntrustedTokenError("the claim 'scp' must be a list of scopes")
    return claims


def _app(services: Services, header: Mapping[str, Any]) -> ConnectedApp:
    for app in services.options.connected_apps:
        if (header.get("iss"), header.get("kid")) == (app.client_id, app.secret_id):
            return app
    raise UntrustedTokenError("the header's 'iss' and 'kid' name no secret of a connected app")


def _check_lifetime(expires_at: object, *, now: float) -> None:
    if not isinstance(expires_at, int | float) or isinstance(expires_at, bool):
        raise UntrustedTokenError("the claim 'exp' is no time")
    if expires_at <= now:
        raise UntrustedTokenError("the token has expired")
    # The comparison is negated so that it refuses NaN as well.
    if not expires_at <= now + _LONGEST_SECONDS:
        raise UntrustedTokenError("the token is valid for more than 10 minutes")


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims[name]
    if not isinstance(value, str) or not value:
        raise UntrustedTokenError(f"the claim '{name}' is no text")
    return value
