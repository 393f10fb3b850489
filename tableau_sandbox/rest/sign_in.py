"""Sign in and out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from xml.etree.ElementTree import Element as XmlElement

import jwt
from starlette.responses import Response

from tableau_sandbox.errors import RestError, malformed, not_found, refusal
from tableau_sandbox.options import ConnectedApp
from tableau_sandbox.rest.answers import Element, Reply
from tableau_sandbox.rest.requests import Call, flag_attribute, parse_request
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts
from tableau_sandbox.store.records import Site, User

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


@dataclass(frozen=True)
class _Identity:
    """Whom credentials stand for, and what their session is bound to."""

    user: User
    access_token: str | None = None
    scopes: Sequence[str] = ()


def sign_in(services: Services, call: Call) -> Reply:
    """Open a session, by password, personal access token or JSON web token."""
    credentials = parse_request(call.body, "credentials")
    identity = _identify(services, credentials)
    site_element = credentials.find("site")
    content_url = "" if site_element is None else site_element.get("contentUrl", "")
    site = accounts.site_by_content_url(services.database, content_url)
    if identity is None or site is None:
        raise _sign_in_error("Error signing in to Tableau Server")
    identity = replace(identity, user=_impersonated(services, credentials, identity.user))
    if not identity.user.may_sign_in:
        raise _sign_in_error("The user has no license to sign in.")
    token = identity.access_token
    with services.database.transaction():
        accounts.forget_expired_sessions(services.database, now=services.now_seconds())
        if token and services.options.one_session_per_token:
            accounts.end_sessions_of_access_token(services.database, token)
        return _open_session(services, identity, site=site)


def switch_site(services: Services, call: Call) -> Reply:
    """End the session and open one on another site."""
    content_url = parse_request(call.body, "site").get("contentUrl", "")
    site = accounts.site_by_content_url(services.database, content_url)
    if site is None:
        raise refusal("401003", "Switching to the site failed: there is no such site.")
    if site == call.site:
        raise refusal("403070", "The session belongs to this site already.")
    with services.database.transaction():
        accounts.end_session(services.database, call.session)
        identity = _Identity(call.user, call.session.access_token, call.session.scopes)
        return _open_session(services, identity, site=site)


def sign_out(services: Services, call: Call) -> Response:
    """End the session."""
    accounts.end_session(services.database, call.session)
    return Response(status_code=204)


def _identify(services: Services, credentials: XmlElement) -> _Identity | None:
    password = credentials.get("name"), credentials.get("password")
    token = (
        credentials.get("personalAccessTokenName"),
        credentials.get("personalAccessTokenSecret"),
    )
    signed = credentials.get("jwt")
    if [any(password), any(token), signed is not None].count(True) != 1:
        raise malformed("Give a name and a password, a personal access token, or a signed token.")
    if signed is not None:
        return _identify_by_signed_token(services, credentials, signed)
    name, secret = password if any(password) else token
    if name is None or secret is None:
        raise malformed("The credentials are incomplete.")
    if any(password):
        user, used = accounts.user_of_password(services.database, name, secret), None
    else:
        user, used = accounts.user_of_access_token(services.database, name, secret), name
    return _Identity(user, used) if user else None


def _identify_by_signed_token(services: Services, credentials: XmlElement, token: str) -> _Identity:
    if flag_attribute(credentials, "isUat", default=False):
        raise _sign_in_error("Unified access tokens are a matter of Tableau Cloud.")
    try:
        user, scopes = user_of_token(services, token)
    except UntrustedTokenError as error:
        detail = f"Error signing in to Tableau Server: {error}"
        raise _sign_in_error(detail) from error
    return _Identity(user, scopes=scopes)


def _impersonated(services: Services, credentials: XmlElement, user: User) -> User:
    wanted = credentials.find("user")
    luid = None if wanted is None else wanted.get("id")
    # Some clients name nobody by `{"user": {"id": null}}`.
    if luid is None:
        return user
    if not user.is_admin:
        raise _sign_in_error("Only administrators may impersonate users.")
    found = accounts.user(services.database, luid)
    if found is None:
        raise not_found("User", luid, code="404002")
    return found


def _open_session(services: Services, identity: _Identity, *, site: Site) -> Reply:
    minutes = services.options.session_minutes
    token = accounts.open_session(
        services.database,
        user=identity.user,
        site=site,
        access_token=identity.access_token,
        scopes=identity.scopes,
        expires_at=services.now_seconds() + minutes * 60,
    )
    hours, seconds = divmod(int(minutes * 60), 3600)
    lasts = f"{hours}:{seconds // 60:02}:{seconds % 60:02}"
    credentials = Element(
        "credentials",
        {"token": token, "estimatedTimeToExpiration": lasts},
        (
            Element("site", {"id": site.luid, "contentUrl": site.content_url}),
            Element("user", {"id": identity.user.luid}),
        ),
    )
    return Reply(200, (credentials,))


def _sign_in_error(detail: str) -> RestError:
    return RestError("401001", "Signin Error", detail)


ROUTES = (
    Route("POST", "auth/signin", sign_in, signed_in=False),
    Route("POST", "auth/signout", sign_out, scopes=None),
    Route("POST", "auth/switchSite", switch_site, since="2.6"),
)
