"""A site of a Tableau Server, as a refresh sees it."""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import requests
import tableauserverclient as TSC
from tableauserverclient.server.endpoint.exceptions import NonXMLResponseError, TableauError

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.server import JobEntry, JobStatus, RemoteDatasource
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.publishing import datasources, jobs, projects, updates
from tableau_pipeline.publishing.credentials import Credentials
from tableau_pipeline.publishing.errors import SESSION_GONE, NotLetInError, explained
from tableau_pipeline.publishing.patience import patient_sessions
from tableau_pipeline.publishing.uploads import ReportedUploads

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)


class TableauSite:
    """Implements `refresh.server.Server` on the Tableau Server Client library (TSC).

    A session may end before its time: it is renewed once in each call. `.tsc` is the TSC client.
    """

    def __init__(
        self, tsc: TSC.Server, *, url: str, site: str, sign_in: Callable[[], object]
    ) -> None:
        self.tsc = tsc
        self.url = url
        self.site = site
        self._sign_in = sign_in

    @property
    def user_id(self) -> str:
        """The LUID of the user signed in."""
        return str(self.tsc.user_id)

    @property
    def payload_limit(self) -> int:
        """How many bytes the payload of an update may have; 0 where there are no updates."""
        return updates.payload_limit(self.tsc)

    def find_project(self, path: str) -> str | None:
        """The id of the project at a path of names, or None."""
        return self._ask(
            f'Looking for project "{path}"', lambda: projects.find_project(self.tsc, path)
        )

    def project(self, path: str, *, create: bool) -> str:
        """The id of the project at a path of names."""
        return self._ask(
            f'Looking for project "{path}"',
            lambda: projects.project_id(self.tsc, path, create=create),
        )

    def find_by_luid(self, luid: str) -> RemoteDatasource | None:
        """The data source, or None if there is none; not to be allowed to read it is an error."""
        return self._ask(
            f"Looking for data source {luid}", lambda: datasources.find_by_luid(self.tsc, luid)
        )

    def find_by_name(self, name: str, *, project_id: str) -> RemoteDatasource | None:
        """The data source that has this name in a project, in any case of letters, or None."""
        return self._ask(
            f'Looking for data source "{name}"',
            lambda: datasources.find_by_name(self.tsc, name, project_id=project_id),
        )

    def publish(
        self, file: Path, *, name: str, project_id: str, mode: PublishMode
    ) -> RemoteDatasource | str:
        """Send a whole file; files too large for one request go in blocks, and on as a job."""
        return self._ask(
            f'Publishing "{name}"',
            lambda: datasources.publish(
                self.tsc, file, name=name, project_id=project_id, mode=mode
            ),
        )

    def update(
        self,
        luid: str,
        *,
        batch: str,
        payload: Path | None,
        request_id: str,
        connection: str | None = None,
    ) -> str | None:
        """Send a batch of actions; the id of its job, or None where the server does not name it."""
        return self._ask(
            f"Updating data source {luid}",
            lambda: updates.send_update(
                self.tsc,
                luid,
                batch=batch,
                payload=payload,
                request_id=request_id,
                connection=connection,
            ),
        )

    def job(self, job_id: str) -> JobStatus | None:
        """How a job fares; None if the server no longer knows it, as servers forget old ones."""
        return self._ask(f"Asking for job {job_id}", lambda: jobs.find_job(self.tsc, job_id))

    def jobs(self, *, name: str, since: datetime) -> Sequence[JobEntry] | None:
        """The jobs on data sources of this name; None if this user may not see them."""
        # To connected apps, servers of before 2025.3 do not give lists of jobs in any session.
        with suppress(NotLetInError):
            return self._ask(
                f'Asking for the jobs of "{name}"',
                lambda: jobs.jobs_on(self.tsc, name=name, since=since),
            )
        return None

    def cancel(self, job_id: str) -> bool:
        """End a job; whether it is certain never to take effect."""
        # Has it ended, or is it not ours to cancel? What counts is how it fares.
        with suppress(RefusedError, NotLetInError):
            self._ask(f"Cancelling job {job_id}", lambda: self.tsc.jobs.cancel(job_id))
        status = self.job(job_id)
        return status is not None and status.outcome in (Outcome.FAILED, Outcome.CANCELLED)

    def tag(self, luid: str, tag: str) -> None:
        """Add a tag to a data source."""
        self._ask(f"Tagging data source {luid}", lambda: self.tsc.datasources.add_tags(luid, tag))

    def metadata_digest(self, luid: str) -> str:
        """A digest of the data source's `.tds`, which holds what analysts edit."""
        return self._ask(
            f"Reading the metadata of data source {luid}",
            lambda: datasources.metadata_digest(self.tsc, luid),
        )

    def download(self, luid: str, folder: Path) -> Path:
        """Save the data source as a `.tdsx` file in `folder`."""
        return self._ask(
            f"Downloading data source {luid}",
            lambda: Path(self.tsc.datasources.download(luid, folder)),
        )

    def _ask(self, doing: str, call: Callable[[], _T]) -> _T:
        with explained(doing, url=self.url):
            try:
                return call()
            except TSC.FailedSignInError as error:
                if error.code not in SESSION_GONE:
                    raise
                # Whoever is not signed in gets nothing done: none of it happens twice.
                self._sign_in()
                return call()


@contextmanager
def signed_in(
    url: str,
    *,
    credentials: Credentials,
    site: str = "",
    ca_bundle: Path | None = None,
    log: logging.Logger = _LOG,
) -> Generator[TableauSite]:
    """A session, which ends with the block.

    Args:
        site: its content URL; "" is the default site.
        ca_bundle: certificates to trust instead of the system's.
        log: is told of uploads, and of calls that have to be made again.

    Raises:
        RefusedError: the server does not accept the credentials.
        RefreshError: no Tableau Server answers at `url`.
    """
    url = url.rstrip("/")

    def sign_in() -> None:
        # A signed token lets its user in once.
        tsc.auth.sign_in(credentials.for_site(site))

    def sign_in_again() -> None:
        log.warning(
            'The session on site "%s" has ended: signing in again. If this comes often, the same '
            "token may be in use elsewhere: give each deployment a token of its own",
            site,
        )
        sign_in()

    with explained(f'Signing in to site "{site}"', url=url):
        tsc = TSC.Server(
            url,
            http_options={"verify": str(ca_bundle) if ca_bundle else True},
            session_factory=patient_sessions(log),
        )
        try:
            # TSC's own use_server_version() takes every failure for a server of ten years ago.
            tsc.version = _version(tsc)
            sign_in()
        except (AttributeError, SyntaxError, ValueError) as error:
            # So TSC stumbles over answers that lack what Tableau's have.
            raise NonXMLResponseError(f"no answer of a Tableau Server: {error}") from error
    tsc.fileuploads = ReportedUploads(tsc, log)
    try:
        yield TableauSite(tsc, url=url, site=site, sign_in=sign_in_again)
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
