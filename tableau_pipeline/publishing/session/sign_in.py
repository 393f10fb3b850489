"""Sessions on a site: signing in, by turns where a token allows but one, and out."""

import logging
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import requests
import tableauserverclient as TSC
from tableauserverclient.server.endpoint.exceptions import NonXMLResponseError, TableauError

from tableau_pipeline.publishing.session.clock import ServerClock
from tableau_pipeline.publishing.session.credentials import (
    Credentials,
    PersonalAccessToken,
    no_entry,
)
from tableau_pipeline.publishing.session.retries import RetryTimes, safe_sessions
from tableau_pipeline.publishing.session.session_lock import only_session
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.publishing.translate_errors import NO_ENTRY, translate_errors

_LOG = logging.getLogger(__name__)
_TIMES = RetryTimes()


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
    """A session, which ends with the block.

    A personal access token carries one session at a time. Whoever wants another with the same token
    waits for its end, if it is the same user on the same host, whatever the site; across hosts and
    users nobody can know of the other: give each a token of its own. Passwords and connected apps
    have as many sessions as they like.

    Args:
        site: its content URL; "" is the default site.
        ca_bundle: certificates to trust instead of the system's.
        log: is told of uploads, of waiting, and of calls that have to be made again.
        session_timeout: seconds to wait for the token.
        times: how long requests are waited for, and tried again.

    Raises:
        RefusedError: the server does not accept the credentials, or this thread has a session with
            this token already.
        RefreshError: no Tableau Server answers at `url`, or the token was in use for too long.
    """
    url = url.rstrip("/")
    turn = (
        only_session(url, token=credentials.name, timeout=session_timeout, log=log)
        if isinstance(credentials, PersonalAccessToken)
        else nullcontext()
    )
    opened = _session(url, credentials, site=site, ca_bundle=ca_bundle, log=log, times=times)
    with turn, opened as session:
        yield session


@contextmanager
def _session(
    url: str,
    credentials: Credentials,
    *,
    site: str,
    ca_bundle: Path | None,
    log: logging.Logger,
    times: RetryTimes,
) -> Generator[TableauSite]:
    doing = f'Signing in to site "{site}" of {url} {credentials.described}'
    remedy = no_entry(credentials, site)

    def sign_in() -> None:
        with translate_errors(doing, url=url, remedies={NO_ENTRY: remedy}):
            # A signed token lets its user in once.
            tsc.auth.sign_in(credentials.for_site(site))

    def sign_in_again() -> None:
        log.warning(
            'The session on site "%s" has ended: signing in again. If this comes often, the same '
            "token may be in use elsewhere: give each deployment a token of its own",
            site,
        )
        sign_in()

    clock = ServerClock()
    with translate_errors(doing, url=url):
        tsc = TSC.Server(
            url,
            http_options={"verify": str(ca_bundle) if ca_bundle else True},
            session_factory=safe_sessions(log, clock.hear, times=times),
        )
        try:
            # TSC's own use_server_version() takes every failure for a server of ten years ago.
            tsc.version = _version(tsc)
            sign_in()
        except (AttributeError, SyntaxError, ValueError) as error:
            # So TSC stumbles over answers that lack what Tableau's have.
            raise NonXMLResponseError(f"no answer of a Tableau Server: {error}") from error
    try:
        yield TableauSite(tsc, url=url, site=site, sign_in=sign_in_again, clock=clock, log=log)
    finally:
        try:
            tsc.auth.sign_out()
        except (TableauError, requests.RequestException) as error:
            # What was to be done is done, or has its own error: this one must not hide it.
            log.debug("Signing out failed: %s", error)


def _version(tsc: TSC.Server) -> str:
    info = tsc.server_info.get()
    if info is None:
        raise NonXMLResponseError("an answer that tells no version")
    return info.rest_api_version
