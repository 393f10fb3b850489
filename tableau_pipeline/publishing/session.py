"""Sign in to Tableau, with a personal access token, a password or a connected app.

Each class of credentials has two texts. `sign_in_phrase` names the user or the token that signs in.
`remedy` names what to check if the server rejects the credentials. The repr of credentials never
shows a secret.
"""

import hashlib
import logging
import os
import re
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

import jwt
import requests
import tableauserverclient as TSC
from filelock import FileLock, Timeout

from tableau_pipeline.errors import BudgetSpentError, RefreshError, RefusedError
from tableau_pipeline.objects.local_files import temporary_folder
from tableau_pipeline.outcome import Code
from tableau_pipeline.publishing.connections import check_bundle
from tableau_pipeline.publishing.errors import SIGN_IN_REFUSED, UNREADABLE, translate_errors
from tableau_pipeline.publishing.http import ServerClock, Wire, rest_session, server_address
from tableau_pipeline.publishing.retries import RetryTimes
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.publishing.tsc_internals import NonXMLResponseError, TableauError

# The scopes that our calls need, from Tableau's "Access Scopes for Connected Apps". Tableau does
# not say clearly which scope some calls need, such as cancelling a job or removing a tag. For these
# calls, use a wildcard.
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
_PEOPLE_SCOPES = ["tableau:groups:read", "tableau:permissions:*", "tableau:users:read"]
# Tableau refuses a connected app's token that is valid for more than 10 minutes. The session
# continues after the token has expired.
_TOKEN_LIFETIME = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class PersonalAccessToken:
    """A personal access token. It allows one session: a new sign-in ends the former session."""

    name: str
    value: str = field(repr=False)
    remedy: ClassVar = (
        "Check TABLEAU_TOKEN_NAME and TABLEAU_TOKEN_VALUE; a token ends after 15 days without use, "
        "and a year after it was made: make a new one under My Account Settings"
    )
    sign_in_phrase: ClassVar = 'with the token "{0.name}"'

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
    sign_in_phrase: ClassVar = 'as "{0.username}" with a password'

    def for_site(self, site: str) -> TSC.TableauAuth:
        """Return TSC's credentials."""
        return TSC.TableauAuth(self.username, self.password, site_id=site)


@dataclass(frozen=True, slots=True)
class ConnectedApp:
    """A connected app with direct trust: it lets us sign tokens for `username` with its secret.

    Attributes:
        counts: whether the session may ask the server to count rows.
        people: whether the session may look up groups and users, and change permissions.
    """

    username: str
    client_id: str
    secret_id: str
    secret_value: str = field(repr=False)
    counts: bool = False
    people: bool = False
    remedy: ClassVar = (
        "Check TABLEAU_USERNAME and the three TABLEAU_CONNECTED_APP_* variables, whether the "
        "connected app is enabled, and the clock of this host"
    )
    sign_in_phrase: ClassVar = 'as "{0.username}" by the connected app {0.client_id}'

    def for_site(self, site: str) -> TSC.JWTAuth:
        """Return TSC's credentials."""
        claims = {
            "iss": self.client_id,
            "exp": datetime.now(UTC) + _TOKEN_LIFETIME,
            # Give each token a new id: Tableau refuses an id that it has seen before.
            "jti": str(uuid4()),
            "aud": "tableau",
            "sub": self.username,
            # Request only the scopes that we need, because a server may refuse a token with an
            # unknown scope.
            "scp": [
                *_SCOPES,
                *(["tableau:viz_data_service:read"] if self.counts else []),
                *(_PEOPLE_SCOPES if self.people else []),
            ],
        }
        headers = {"kid": self.secret_id, "iss": self.client_id}
        token = jwt.encode(claims, self.secret_value, algorithm="HS256", headers=headers)
        return TSC.JWTAuth(token, site_id=site)


Credentials = PersonalAccessToken | Password | ConnectedApp


_POLL_SECONDS = 0.2

# For each lock file that this process holds, the thread that has locked it.
_holders: dict[Path, int] = {}


@contextmanager
def only_session(url: str, *, token: str, timeout: float, log: logging.Logger) -> Generator[None]:
    """Reserve a token; other threads and processes of this user on this host wait for its release.

    A lock file reserves the token; the operating system releases the lock if this process dies.
    Other hosts and users do not see the lock, so each of them needs a token of its own.

    Args:
        token: the name of the token. A new sign-in with the token ends the previous session of the
            token, even on another site.
        timeout: how long to wait for the token, in seconds.

    Raises:
        RefusedError: this thread already holds the token, so that it would wait for itself. Or the
            folder for locks is not safe (see `temporary_folder`).
        RefreshError: other sessions held the token for too long.
    """
    folder = temporary_folder() / "sessions"
    folder.mkdir(exist_ok=True)
    # Hash the name of the token, because some of its characters may be invalid in file names.
    name = hashlib.sha256(f"{url.casefold()}\n{token}".encode()).hexdigest()[:32]
    path = folder / f"{name}.lock"
    # Refuse nested sessions: the sign-in of the inner session would end the outer session. A
    # renewal of the outer session would then end the inner session.
    if _holders.get(path) == threading.get_ident():
        raise RefusedError(
            f'A session of token "{token}" on {url} is open in this thread already, and a token '
            "allows only one. Pass that session on, end it first, or sign in with another token.",
            code=Code.IN_USE,
        )
    # Do not write the holder's name into the lock file: each process that waits for the lock
    # empties that file.
    holder = path.with_suffix(".holder")
    # Make a new FileLock for each session: a shared FileLock would let in all threads of the
    # process.
    with _acquire(FileLock(path), holder, url=url, token=token, timeout=timeout, log=log):
        _holders[path] = threading.get_ident()
        pid = os.getpid()
        process = f"process {pid} on this host (if it is paused, kill -CONT {pid} continues it)"
        holder.write_text(process, encoding="ascii")
        try:
            yield
        finally:
            del _holders[path]


def _acquire(
    lock: FileLock, holder: Path, *, url: str, token: str, timeout: float, log: logging.Logger
) -> AbstractContextManager[object]:
    # Log only waits that are longer than this number of seconds.
    quiet = min(timeout, 1.0)
    with suppress(Timeout):
        return lock.acquire(timeout=quiet, poll_interval=_POLL_SECONDS)
    log.info(
        'Waiting for token "%s" on %s: %s has a session with it, and a token allows one. With '
        "a token of their own, refreshes need not wait",
        token,
        url,
        _holder_name(holder),
        extra={"waits_for": "token"},
    )
    try:
        return lock.acquire(timeout=timeout - quiet, poll_interval=_POLL_SECONDS)
    except Timeout as error:
        raise RefreshError(
            f'Token "{token}" on {url} was in use by other refreshes on this host for '
            f"{timeout:.0f} s, last by {_holder_name(holder)}, and a token allows one session at a "
            "time. Run again later, or give each deployment and host a token of its own."
        ) from error


def _holder_name(holder: Path) -> str:
    """Describe the process that holds a lock, by the text in `holder` if this file is readable."""
    with suppress(OSError):
        return holder.read_text(encoding="ascii")
    return "another process on this host"


_LOG, _TIMES = logging.getLogger(__name__), RetryTimes()


@contextmanager
def signed_in(
    url: str,
    *,
    credentials: Credentials,
    site: str = "",
    ca_bundle: Path | None = None,
    log: logging.Logger = _LOG,
    session_timeout: float = 7200,
    times: RetryTimes = _TIMES,
) -> Generator[TableauSite]:
    """Open a session on a site for a `with` block, and end the session after the block.

    A personal access token allows one session at a time, over all sites. If the same user opens two
    sessions with the same token on the same host, the second session waits for the end of the
    first. Other hosts and users do not wait, so each of them needs a token of its own. Passwords
    and connected apps allow any number of sessions.

    Args:
        site: the content URL of the site; "" is the default site.
        ca_bundle: a file with certificates to trust, instead of the system's certificates.
        log: receives messages about uploads, waits and retries.
        session_timeout: how long to wait for the token, in seconds.
        times: time limits and retries of requests.

    Raises:
        RefusedError: the server rejects the credentials, or the URL contains credentials. Or the
            certificates cannot be read, or this thread already has a session with this token.
        RefreshError: no Tableau Server answers at `url`, or the token was in use for too long.
    """
    url = server_address(url)
    check_bundle(ca_bundle, url)
    reservation = (
        only_session(url, token=credentials.name, timeout=session_timeout, log=log)
        if isinstance(credentials, PersonalAccessToken)
        else nullcontext()
    )
    # Reserve the token first: signing in would end another session with the token.
    with reservation, _session(Wire(url, times, log), credentials, site, ca_bundle) as session:
        yield session


@contextmanager
def _session(
    wire: Wire, credentials: Credentials, site: str, ca_bundle: Path | None
) -> Generator[TableauSite]:
    url, hide = wire.url, wire.message
    doing = f'Signing in to site "{site}" of {url} {credentials.sign_in_phrase.format(credentials)}'
    # Name all likely causes, because the server gives no reason.
    hint = (
        f'Does the site "{site}" exist, with this user on it? TABLEAU_SITE is its name in the URL, '
        f"after /site/, and empty for the default site of a Tableau Server. {credentials.remedy}"
        if site
        else f"{credentials.remedy}. It used the default site, because TABLEAU_SITE is not set"
    )

    def sign_in() -> None:
        with translate_errors(doing, url=url, hide=hide, remedies={SIGN_IN_REFUSED: hint}):
            # The token of a connected app is valid for one sign-in only. So make a new token here.
            auth = credentials.for_site(site)
            for name in ("password", "personalAccessTokenSecret", "jwt"):
                wire.learn(auth.credentials.get(name))
            tsc.auth.sign_in(auth)

    clock = ServerClock()
    # Collect the HTTP sessions, and close them all at the end. TSC opens an HTTP session for each
    # thread, and a further one after the sign-out.
    with ExitStack() as sessions:
        with translate_errors(doing, url=url, hide=hide):
            tsc = TSC.Server(
                url,
                http_options={"verify": str(ca_bundle) if ca_bundle else True},
                session_factory=lambda: sessions.enter_context(rest_session(wire, clock.hear)),
            )
            release = _use_newest_version(tsc)
            sign_in()
        try:
            yield TableauSite(
                tsc,
                url=url,
                site=site,
                sign_in=sign_in,
                clock=clock,
                log=wire.log,
                hide=hide,
                release=release,
                may_count=not isinstance(credentials, ConnectedApp) or credentials.counts,
                budget=wire.budget,
            )
        finally:
            # Ignore errors here: the block is done, or the block's own error must stay visible.
            with suppress(TableauError, BudgetSpentError, *UNREADABLE, requests.RequestException):
                tsc.auth.sign_out()


def _use_newest_version(tsc: TSC.Server) -> str:
    """Use the server's newest REST API version; return the release of the server in words."""
    # Avoid TSC's own use_server_version(): after a failure, it assumes a ten-year-old server.
    server = tsc.server_info.get()
    version = getattr(server, "rest_api_version", None) or ""
    if not re.fullmatch(r"[0-9]+\.[0-9]+", version):
        raise NonXMLResponseError("an answer without a version")
    tsc.version = version
    product, build = (getattr(server, name, "?") for name in ("product_version", "build_number"))
    return f"Tableau {product} ({build}), REST {version}"
