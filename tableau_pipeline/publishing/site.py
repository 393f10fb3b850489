"""A site of a Tableau Server, as a refresh sees it."""

import hashlib
import logging
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import requests
import tableauserverclient as TSC
from tableauserverclient.config import config
from tableauserverclient.server.endpoint.exceptions import NonXMLResponseError, TableauError

from tableau_pipeline.publishing.credentials import Credentials
from tableau_pipeline.publishing.errors import explained
from tableau_pipeline.publishing.projects import find_project, project_id
from tableau_pipeline.publishing.query import named
from tableau_pipeline.publishing.uploads import ReportedUploads
from tableau_pipeline.refresh.errors import RefreshError
from tableau_pipeline.refresh.server import JobStatus, RemoteDatasource
from tableau_pipeline.refresh.state import Outcome, PublishMode

_MODES = {
    PublishMode.CREATE: TSC.Server.PublishMode.CreateNew,
    PublishMode.REPLACE: TSC.Server.PublishMode.Replace,
    PublishMode.OVERWRITE: TSC.Server.PublishMode.Overwrite,
}
_LOG = logging.getLogger(__name__)
_NOT_FOUND = {"404000", "404004", "404011"}
_JOB_NOT_FOUND = {"400031", "404018"}
_SUCCEEDED = {TSC.JobItem.FinishCode.Success, TSC.JobItem.FinishCode.Completed}


class TableauSite:
    """Implements `refresh.server.Server` on the Tableau Server Client library (TSC)."""

    def __init__(self, tsc: TSC.Server, *, url: str, site: str) -> None:
        self.tsc = tsc
        self.url = url
        self.site = site

    @property
    def user_id(self) -> str:
        """The LUID of the user signed in."""
        return str(self.tsc.user_id)

    def find_project(self, path: str) -> str | None:
        """The id of the project at a path of names, or None."""
        with explained(f'Looking for project "{path}"', url=self.url):
            return find_project(self.tsc, path)

    def project(self, path: str, *, create: bool) -> str:
        """The id of the project at a path of names."""
        with explained(f'Looking for project "{path}"', url=self.url):
            return project_id(self.tsc, path, create=create)

    def find_by_luid(self, luid: str) -> RemoteDatasource | None:
        """The data source, or None if there is none; not to be allowed to read it is an error."""
        with explained(f"Looking for data source {luid}", url=self.url):
            try:
                return _remote(self.tsc.datasources.get_by_id(luid))
            except TSC.ServerResponseError as error:
                if error.code in _NOT_FOUND:
                    return None
                raise

    def find_by_name(self, name: str, *, project_id: str) -> RemoteDatasource | None:
        """The data source of this name in a project, or None."""
        with explained(f'Looking for data source "{name}"', url=self.url):
            for item in named(self.tsc.datasources, name):
                if item.name == name and item.project_id == project_id:
                    return _remote(item)
        return None

    def publish(
        self, file: Path, *, name: str, project_id: str, mode: PublishMode
    ) -> RemoteDatasource | str:
        """Send a whole file; files too large for one request go in blocks, and on as a job."""
        large = file.stat().st_size >= config.FILESIZE_LIMIT_MB * 2**20
        with explained(f'Publishing "{name}"', url=self.url):
            answer = self.tsc.datasources.publish(
                TSC.DatasourceItem(project_id, name=name), file, _MODES[mode], as_job=large
            )
        return str(answer.id) if isinstance(answer, TSC.JobItem) else _remote(answer)

    def job(self, job_id: str) -> JobStatus | None:
        """How a job fares; None if the server no longer knows it, as servers forget old ones."""
        with explained(f"Asking for job {job_id}", url=self.url):
            try:
                job = self.tsc.jobs.get_by_id(job_id)
            except TSC.ServerResponseError as error:
                if error.code in _JOB_NOT_FOUND:
                    return None
                raise
        notes = " ".join(note for note in job.notes if note)
        if job.completed_at is None:
            return JobStatus(outcome=None, notes=notes)
        succeeded = job.finish_code in _SUCCEEDED
        return JobStatus(outcome=Outcome.DONE if succeeded else Outcome.FAILED, notes=notes)

    def tag(self, luid: str, tag: str) -> None:
        """Add a tag to a data source."""
        with explained(f"Tagging data source {luid}", url=self.url):
            self.tsc.datasources.add_tags(luid, tag)

    def metadata_digest(self, luid: str) -> str:
        """A digest of the data source's `.tds`, which holds what analysts edit."""
        tds = BytesIO()
        with explained(f"Reading the metadata of data source {luid}", url=self.url):
            self.tsc.datasources.download(luid, tds, include_extract=False)
        return hashlib.sha256(tds.getvalue()).hexdigest()[:16]

    def download(self, luid: str, folder: Path) -> Path:
        """Save the data source as a `.tdsx` file in `folder`."""
        with explained(f"Downloading data source {luid}", url=self.url):
            return Path(self.tsc.datasources.download(luid, folder))


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

    Raises:
        RefusedError: the server does not accept the credentials.
        RefreshError: no Tableau Server answers at `url`.
    """
    url = url.rstrip("/")
    with explained(f'Signing in to site "{site}"', url=url):
        tsc = TSC.Server(url, http_options={"verify": str(ca_bundle) if ca_bundle else True})
        try:
            tsc.use_server_version()
            tsc.auth.sign_in(credentials.for_site(site))
        except (AttributeError, SyntaxError, ValueError) as error:
            # So TSC stumbles over answers that lack what Tableau's have.
            raise NonXMLResponseError(f"no answer of a Tableau Server: {error}") from error
    tsc.fileuploads = ReportedUploads(tsc, log)
    try:
        yield TableauSite(tsc, url=url, site=site)
    finally:
        try:
            tsc.auth.sign_out()
        except (TableauError, requests.RequestException) as error:
            # What was to be done is done, or has its own error: this one must not hide it.
            log.debug("Signing out failed: %s", error)


def _remote(item: TSC.DatasourceItem) -> RemoteDatasource:
    if item.updated_at is None:
        raise RefreshError(f"The server tells no valid updatedAt of data source {item.id}.")
    return RemoteDatasource(
        luid=str(item.id),
        name=str(item.name),
        project_id=str(item.project_id),
        owner_id=str(item.owner_id),
        updated_at=item.updated_at,
        tags=frozenset(item.tags or ()),
        link=item.webpage_url,
    )
