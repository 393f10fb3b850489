"""Sign in to a site, one at a time for each token, and sign out."""

import logging
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import requests
import tableauserverclient as TSC
from tableauserverclient.server.endpoint.exceptions import NonXMLResponseError, TableauError

from tableau_pipeline.publishing.session.address import Address
from tableau_pipeline.publishing.session.clock import ServerClock
from tableau_pipeline.publishing.session.credentials import (
    ConnectedApp,
    Credentials,
    PersonalAccessToken,
    no_entry,
)
from tableau_pipeline.publishing.session.retries import RetryTimes, safe_sessions
from tableau_pipeline.publishing.session.session_lock import only_session
from tableau_pipeline.publishing.session.wire import Wire
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.publishing.translate_errors import (
    NO_ENTRY,
    UNREADABLE,
    translate_errors,
)

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
    """Open a session, which ends with the block.

    A personal access token allows one session at a time. Another session with the same token waits
    for the end of this one, if it is of the same user on the same host, on any site. Across hosts
    and users there is no such protection: give each a token of its own. Passwords and connected
    apps allow any number of sessions.

    Args:
        site: the content URL of the site; "" is the default site.
        ca_bundle: certificates to trust instead of the system's.
        log: receives messages about uploads, waiting and repeated calls.
        session_timeout: seconds to wait for the token.
        times: how long requests are waited for, and tried again.

    Raises:
        RefusedError: the server rejects the credentials, the URL holds some, or this thread
            already has a session with this token.
        RefreshError: no Tableau Server answers at `url`, or the token was in use for too long.
    """
    wire = Wire(Address.of(url), times.read)
    url = wire.address.url
    turn = (
        only_session(url, token=credentials.name, timeout=session_timeout, log=log)
        if isinstance(credentials, PersonalAccessToken)
        else nullcontext()
    )
    opened = _session(wire, credentials, site=site, ca_bundle=ca_bundle, log=log, times=times)
    # The turn comes first, as signing in ends the session of whoever uses the token now.
    with turn, opened as session:
        yield session


@contextmanager
def _session(
    wire: Wire,
    credentials: Credentials,
    *,
    site: str,
    ca_bundle: Path | None,
    log: logging.Logger,
    times: RetryTimes,
) -> Generator[TableauSite]:
    url, hide = wire.address.url, wire.secrets.message
    doing = f'Signing in to site "{site}" of {url} {credentials.described}'
    remedy = no_entry(credentials, site)

    def sign_in() -> None:
        with translate_errors(doing, url=url, hide=hide, remedies={NO_ENTRY: remedy}):
            # A signed token is valid for one sign-in only, so a new one is made here.
            tsc.auth.sign_in(credentials.for_site(site))

    def sign_in_again() -> None:
        log.warning(
            'The session on site "%s" has ended: signing in again. If this happens often, the same '
            "token may be in use elsewhere: give each deployment a token of its own",
            site,
        )
        sign_in()

    clock = ServerClock()
    with translate_errors(doing, url=url, hide=hide):
        tsc = TSC.Server(
            url,
            http_options={"verify": str(ca_bundle) if ca_bundle else True},
            session_factory=safe_sessions(wire, log, clock.hear, times=times),
        )
        # TSC's own use_server_version() treats any failure as a server of ten years ago.
        tsc.version = _version(tsc)
        sign_in()
    try:
        counts = not isinstance(credentials, ConnectedApp) or credentials.counts
        yield TableauSite(
            tsc,
            url=url,
            site=site,
            sign_in=sign_in_again,
            clock=clock,
            log=log,
            hide=hide,
            may_count=counts,
        )
    finally:
        _sign_out(tsc, log)


def _sign_out(tsc: TSC.Server, log: logging.Logger) -> None:
    try:
        tsc.auth.sign_out()
    except (TableauError, *UNREADABLE, requests.RequestException) as error:
        # The work is done, or has raised its own error, which this one must not hide.
        log.debug("Signing out failed: %s", type(error).__name__)


def _version(tsc: TSC.Server) -> str:
    info = tsc.server_info.get()
    if info is None:
        raise NonXMLResponseError("an answer without a version")
    return info.rest_api_version
