"""Sign in by password, personal access token or a connected app's signed token; sign out."""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

import jwt
from starlette.responses import Response

from tableau_sandbox.errors import RestError, malformed
from tableau_sandbox.options import ConnectedApp
from tableau_sandbox.rest.answers import Reply, element
from tableau_sandbox.rest.requests import Call, parse_request
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts
from tableau_sandbox.store.records import Site, User

_LONGEST_SECONDS = 600
_CLAIMS = ("iss", "exp", "jti", "aud", "sub", "scp")


def sign_in(services: Services, call: Call) -> Reply:
    """Open a session.

    With the option `one_session_per_token`, a sign-in with a personal access token ends the former
    session of this token.
    """
    credentials = parse_request(call.body, "credentials")
    user, access_token, scopes = _identify(services, credentials)
    named = credentials.find("site")
    content_url = "" if named is None else named.get("contentUrl", "")
    site = services.database.find(Site, content_url=content_url)
    if user is None or site is None:
        raise _refused()
    if not user.may_sign_in:
        raise _refused("the user has no license to sign in")
    minutes = services.options.session_minutes
    with services.database.transaction():
        accounts.forget_expired_sessions(services.database, now=services.now_seconds())
        if access_token and services.options.one_session_per_token:
            services.database.delete("session", access_token=access_token)
        token = accounts.open_session(
            services.database,
            user=user,
            site=site,
            access_token=access_token,
            scopes=scopes,
            expires_at=services.now_seconds() + minutes * 60,
        )
    hours, seconds = divmod(int(minutes * 60), 3600)
    lasts = f"{hours}:{seconds // 60:02}:{seconds % 60:02}"
    answer = element(
        "credentials",
        {"token": token, "estimatedTimeToExpiration": lasts},
        element("site", {"id": site.luid, "contentUrl": site.content_url}),
        element("user", {"id": user.luid}),
    )
    return Reply(200, answer)


def sign_out(services: Services, call: Call) -> Response:
    """End the session of the call."""
    services.database.delete("session", token_digest=call.session.token_digest)
    return Response(status_code=204)


def _identify(
    services: Services, credentials: Element
) -> tuple[User | None, str | None, Sequence[str]]:
    """Return the user, the name of the personal access token, and the scopes of a connected app."""
    password = credentials.get("name"), credentials.get("password")
    token = tuple(credentials.get(f"personalAccessToken{part}") for part in ("Name", "Secret"))
    signed = credentials.get("jwt")
    if [any(password), any(token), signed is not None].count(True) != 1:
        raise malformed("Give a name and a password, a personal access token, or a signed token.")
    if signed is not None:
        user, scopes = _user_of_token(services, signed)
        return user, None, scopes
    name, secret = password if any(password) else token
    if name is None or secret is None:
        raise malformed("The credentials are incomplete.")
    if any(password):
        return accounts.user_of_password(services.database, name, secret), None, ()
    return accounts.user_of_access_token(services.database, name, secret), name, ()


def _user_of_token(services: Services, token: str) -> tuple[User, Sequence[str]]:
    """Return the user for whom a connected app signed a token, and the scopes of the token.

    The token is valid for one sign-in.
    """
    claims = _verified_claims(services, token)
    user = services.database.find(User, name=_text(claims, "sub"))
    if user is None:
        raise _refused("the claim 'sub' names no user")
    # Record the token last, so that a refusal for another reason does not use it up.
    used = {"identifier": _text(claims, "jti"), "expires_at": claims["exp"]}
    if not services.database.add("used_token", **used):
        raise _refused("the claim 'jti' was used before")
    return user, claims["scp"]


def _verified_claims(services: Services, token: str) -> Mapping[str, Any]:
    # Switch off these checks, because this module compares times with the sandbox's own clock.
    unchecked = dict.fromkeys(("verify_exp", "verify_iat", "verify_nbf"), False)
    try:
        app = _app(services, jwt.get_unverified_header(token))
        claims = jwt.decode(
            token,
            app.secret_value,
            algorithms=["HS256"],
            audience="tableau",
            issuer=app.client_id,
            options={"require": list(_CLAIMS), **unchecked},
        )
    except jwt.InvalidTokenError as error:
        # The client may see the library's message, because it does not contain the token.
        raise _refused(str(error)) from error
    _check_lifetime(claims["exp"], now=services.now_seconds())
    scopes = claims["scp"]
    if not (isinstance(scopes, list) and scopes and all(isinstance(s, str) for s in scopes)):
        raise _refused("the claim 'scp' must be a list of scopes")
    return claims


def _app(services: Services, header: Mapping[str, Any]) -> ConnectedApp:
    for app in services.options.connected_apps:
        if (header.get("iss"), header.get("kid")) == (app.client_id, app.secret_id):
            return app
    raise _refused("the header's 'iss' and 'kid' name no secret of a connected app")


def _check_lifetime(expires_at: object, *, now: float) -> None:
    if not isinstance(expires_at, int | float) or isinstance(expires_at, bool):
        raise _refused("the claim 'exp' is not a time")
    if expires_at <= now:
        raise _refused("the token has expired")
    # The comparison is negated to refuse NaN as well.
    if not expires_at <= now + _LONGEST_SECONDS:
        raise _refused("the token is valid for more than 10 minutes")


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims[name]
    if not isinstance(value, str) or not value:
        raise _refused(f"the claim '{name}' is not text")
    return value


def _refused(reason: str = "") -> RestError:
    detail = "Error signing in to Tableau Server"
    return RestError("401001", "Signin Error", f"{detail}: {reason}" if reason else detail)


ROUTES = (
    Route("POST", "auth/signin", sign_in, signed_in=False),
    Route("POST", "auth/signout", sign_out),
)
