"""What a refresh needs of a Tableau Server; `publishing` provides it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from tableau_pipeline.core.checkpoint import Outcome, PublishMode


@dataclass(frozen=True, slots=True)
class RemoteDatasource:
    """A published data source as the server tells of it; `link` leads to its page."""

    luid: str
    name: str
    project_id: str
    owner_id: str
    updated_at: datetime
    tags: frozenset[str]
    link: str | None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job of the server; `outcome` is None while it waits or runs.

    Attributes:
        notes: what the server says of it, in its own words; it may say nothing.
        created_at: by the server's clock, as is `completed_at`.
    """

    outcome: Outcome | None
    notes: str
    created_at: datetime | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobEntry:
    """A job that changes data sources, as a list of jobs shows it; `outcome` as in `JobStatus`."""

    id: str
    kind: Literal["update", "publish"]
    outcome: Outcome | None
    created_at: datetime


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

    def find_project(self, path: str) -> str | None:
        """The id of the project at a path of names; None if there is none."""

    def project(self, path: str, *, create: bool) -> str:
        """The same, where it has to exist, or is created."""

    def find_by_luid(self, luid: str) -> RemoteDatasource | None:
        """None if there is none.

        Raises:
            RefusedError: there is one, and this user may not read it.
        """

    def find_by_name(self, name: str, *, project_id: str) -> RemoteDatasource | None:
        """None if the name is free in that project; names that differ only in case are the same."""

    def publish(
        self, file: Path, *, name: str, project_id: str, mode: PublishMode
    ) -> RemoteDatasource | str:
        """Send a file. A job's id is the answer where the server goes on by itself."""

    def update(
        self,
        luid: str,
        *,
        batch: str,
        payload: Path | None,
        request_id: str,
        connection: str | None = None,
    ) -> str | None:
        """Send a batch of actions, which the server applies as a whole or not at all, and once.

        Args:
            batch: the body of the request, a JSON object with the list "actions".
            payload: the `.hyper` file with the tables that the actions name.
            request_id: whatever else comes with one that the server has seen does nothing.
            connection: the id of one, for data sources with several.

        Returns:
            The id of the job; None if the server keeps to itself which one it is, as it may when
            it has received this request before.

        Raises:
            RefusedError: the server said no: nothing happened.
            RefreshError: the server failed or did not answer: it may have received the request.
        """

    def job(self, job_id: str) -> JobStatus | None:
        """None if the server no longer knows the job."""

    def jobs(self, *, name: str, since: datetime) -> Sequence[JobEntry] | None:
        """Updates and publishes of data sources of this name, in whatever project.

        None if this user may not see the jobs of the site, as is usual for all but administrators.

        Args:
            since: by the server's clock; jobs created before are left out.
        """

    def cancel(self, job_id: str) -> bool:
        """Ask the server to end a job; whether it is now certain never to take effect."""

    def tag(self, luid: str, tag: str) -> None:
        """Add a tag to a data source."""

    def download(self, luid: str, folder: Path) -> Path:
        """A data source with its extract, as a packaged file (`.tdsx`) in a folder.

        Raises:
            RefusedError: this user may not.
        """

    def metadata_digest(self, luid: str) -> str:
        """Changes when somebody edits calculated fields, captions or folders."""
