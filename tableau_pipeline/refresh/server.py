"""What a refresh needs of a Tableau Server; `publishing` provides it."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from tableau_pipeline.refresh.state import Outcome, PublishMode


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
    """A job of the server; `outcome` is None while it waits or runs."""

    outcome: Outcome | None
    notes: str


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
        """None if the name is free in that project."""

    def publish(
        self, file: Path, *, name: str, project_id: str, mode: PublishMode
    ) -> RemoteDatasource | str:
        """Send a file. A job's id is the answer where the server goes on by itself."""

    def job(self, job_id: str) -> JobStatus | None:
        """None if the server no longer knows the job."""

    def tag(self, luid: str, tag: str) -> None:
        """Add a tag to a data source."""

    def metadata_digest(self, luid: str) -> str:
        """Changes when somebody edits calculated fields, captions or folders."""
