"""What a refresh needs of a Tableau Server; `publishing` provides it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.declaration import Project


@dataclass(frozen=True, slots=True)
class RemoteDatasource:
    """A published data source as the server tells of it.

    Attributes:
        revision: the number of the newest one; None where the site keeps none, or this user may
            not see them.
        megabytes: of the file, of 2^20 bytes, rounded; None if the server does not tell.
        link: leads to its page.
    """

    luid: str
    name: str
    project_id: str
    owner_id: str
    created_at: datetime
    updated_at: datetime
    revision: int | None
    megabytes: int | None
    tags: frozenset[str]
    link: str | None

    @property
    def stamp(self) -> tuple[datetime, int | None]:
        """What changes when somebody changes it, as far as the server tells."""
        return self.updated_at, self.revision


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the `.tds` of a data source tells.

    Attributes:
        digest: changes when somebody edits calculated fields, captions or folders; the same for
            the same metadata, however it is written or packed.
        columns: pairs (table, column) of the published file; None if the `.tds` lists none.
    """

    digest: str
    columns: frozenset[tuple[str, str]] | None


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the server; `outcome` is None while it waits or runs.

    Attributes:
        kind: None of one that was asked for by its id.
        notes: what the server says of it, in its own words; it may say nothing.
        created_at: by the server's clock, as are `started_at` and `completed_at`.
    """

    id: str
    outcome: Outcome | None
    kind: Literal["update", "publish"] | None = None
    notes: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


class Server(Protocol):
    """One site of a Tableau Server, signed in to as one user."""

    @property
    def url(self) -> str:
        """Of the server, without a trailing slash."""

    @property
    def site(self) -> str:
        """The site's content URL; "" is the default site."""

    @property
    def user_id(self) -> str:
        """The LUID of the user signed in."""

    @property
    def payload_limit(self) -> int:
        """How many bytes the payload of an update may have; 0 where there are no updates."""

    def now(self) -> datetime:
        """The present by the server's own clock."""

    def find_project(self, project: Project) -> str | None:
        """The id of a project; None if there is none."""

    def project(self, project: Project, *, create: bool) -> str:
        """The id of a project, which has to exist, or is created.

        Raises:
            RefusedError: it does not exist, and may not be created.
        """

    def find_by_luid(self, luid: str) -> RemoteDatasource | None:
        """None if there is none.

        Raises:
            RefusedError: there is one, and this user may not read it.
        """

    def find_by_name(self, name: str, *, project_id: str) -> RemoteDatasource | None:
        """None if the name is free in that project; names that differ only in case are the same."""

    def upload(self, file: Path) -> str:
        """Send a file, which changes nothing yet; the id by which one call may use it."""

    def publish(
        self, upload: str, *, file_type: str, name: str, project_id: str, mode: PublishMode
    ) -> str:
        """Publish an uploaded file; never sent twice.

        Args:
            file_type: the ending of the uploaded file, "hyper" or "parquet".

        Returns:
            The id of the job.

        Raises:
            RefusedError: the server said no: nothing happened.
            RefreshError: the server failed or did not answer: it may have received the request.
        """

    def update(
        self,
        luid: str,
        *,
        batch: str,
        upload: str | None,
        request_id: str,
        connection: str | None = None,
    ) -> str | None:
        """Send a batch of actions, which the server applies as a whole or not at all, and once.

        Args:
            batch: the body of the request, a JSON object with the list "actions".
            upload: the uploaded `.hyper` file with the tables that the actions name.
            request_id: whatever else comes with one that the server has seen does nothing.
            connection: the id of one, for data sources with several.

        Returns:
            The id of the job; None if the server keeps to itself which one it is, as it may when
            it has received this request before.

        Raises:
            RefusedError: the server said no: nothing happened.
            RefreshError: the server failed or did not answer: it may have received the request.
        """

    def job(self, job_id: str) -> Job | None:
        """None if the server no longer knows the job, or hides it from this user."""

    def jobs(self, *, name: str, since: datetime) -> Sequence[Job] | None:
        """Updates and publishes of data sources of this name, in whatever project.

        None if this user may not see the jobs of the site, as is usual for all but administrators.

        Args:
            since: by the server's clock; jobs created before are left out.
        """

    def cancel(self, job_id: str) -> bool:
        """Ask the server to end a job; whether it is now certain never to take effect."""

    def tag(self, luid: str, tags: Collection[str]) -> None:
        """Add tags to a data source."""

    def untag(self, luid: str, tags: Collection[str]) -> None:
        """Take tags away from a data source."""

    def move(self, luid: str, *, name: str, project_id: str) -> RemoteDatasource:
        """Rename a data source, or move it to another project, or both.

        Raises:
            RefusedError: the name is taken there, or this user may not.
        """

    def download(self, luid: str, folder: Path) -> Path:
        """A data source with its extract, as a packaged file (`.tdsx`) in a folder.

        Raises:
            RefusedError: this user may not.
        """

    def metadata(self, luid: str) -> Metadata:
        """What the data source's `.tds` tells."""
