"""The interface of a Tableau Server that a refresh needs; `publishing` implements it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol

from tableau_pipeline.core.checkpoint import ColumnCounts, Counted, CountWay, Outcome, PublishMode
from tableau_pipeline.core.declaration import Project


@dataclass(frozen=True, slots=True)
class RemoteDatasource:
    """A published data source as the server reports it.

    Attributes:
        revision: the number of the newest revision; None if the site keeps none, or this user
            may not see them.
        megabytes: size of the file in units of 2^20 bytes, rounded; None if not reported.
        link: the URL of its page.
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
        """The values that show a change by somebody else, as far as the server reports it."""
        return self.updated_at, self.revision


@dataclass(frozen=True, slots=True)
class Metadata:
    """The content of a data source's `.tds`.

    Attributes:
        digest: changes when somebody edits calculated fields, captions or folders. Equal
            metadata has equal digests, however it is written or packed.
        columns: pairs (table, column) of the published file; None if the `.tds` lists none.
        work: the names of what people made in it, by kind, such as "calculated fields".
    """

    digest: str
    columns: frozenset[tuple[str, str]] | None
    work: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the server; `outcome` is None while it waits or runs.

    Attributes:
        kind: None for a job that was requested by its id.
        notes: the server's own message about the job; it may be empty.
        created_at: by the server's clock, like `started_at` and `completed_at`.
    """

    id: str
    outcome: Outcome | None
    kind: Literal["update", "publish"] | None = None
    notes: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


class Server(Protocol):
    """One site of a Tableau Server, with one user signed in."""

    @property
    def url(self) -> str:
        """The URL of the server, without a trailing slash."""

    @property
    def site(self) -> str:
        """The site's content URL; "" is the default site."""

    @property
    def user_id(self) -> str:
        """The LUID of the user signed in."""

    @property
    def payload_limit(self) -> int:
        """The largest payload of an update in bytes; 0 if the server supports no updates."""

    def now(self) -> datetime:
        """Return the current time by the server's own clock."""

    def find_project(self, project: Project) -> str | None:
        """Return the id of a project; None if there is none."""

    def project(self, project: Project, *, create: bool) -> str:
        """Return the id of a project, which must exist unless it may be created.

        Raises:
            RefusedError: it does not exist, and may not be created.
        """

    def find_by_luid(self, luid: str) -> RemoteDatasource | None:
        """Return the data source; None if there is none.

        Raises:
            RefusedError: it exists, but this user may not read it.
        """

    def updated_at(self, luid: str) -> datetime | None:
        """Return the time stamp of a data source by one request; None if there is none."""

    def find_by_name(self, name: str, *, project_id: str) -> RemoteDatasource | None:
        """Return the data source with this name, in any case of letters; None if there is none."""

    def tagged(self, prefix: str) -> Sequence[RemoteDatasource]:
        """Return the data sources with a tag that begins so, as far as this user may see them."""

    def upload(self, file: Path) -> str:
        """Upload a file, which changes nothing yet; return the id by which one call may use it."""

    def publish(
        self, upload: str, *, file_type: str, name: str, project_id: str, mode: PublishMode
    ) -> str:
        """Publish an uploaded file. The request is never sent twice.

        Args:
            file_type: the suffix of the uploaded file, "hyper" or "parquet".

        Returns:
            The id of the job.

        Raises:
            RefusedError: the server refused the request; nothing happened.
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
        """Send a batch of actions, which the server applies once, and as a whole or not at all.

        Args:
            batch: the body of the request, a JSON object with the list "actions".
            upload: the uploaded `.hyper` file with the tables that the actions name.
            request_id: the server ignores a request whose id it has already seen.
            connection: the id of the connection to update, for data sources with several.

        Returns:
            The id of the job; None if the server does not report it, which may happen when it
            has received this request before.

        Raises:
            RefusedError: the server refused the request; nothing happened.
            RefreshError: the server failed or did not answer: it may have received the request.
        """

    def job(self, job_id: str) -> Job | None:
        """Return a job; None if the server no longer knows it, or hides it from this user."""

    def jobs(self, *, name: str, since: datetime) -> Sequence[Job] | None:
        """Return the updates and publishes of data sources with this name, in any project.

        None if this user may not list the jobs of the site; usually only administrators may.

        Args:
            since: by the server's clock; jobs created before are left out.
        """

    def cancel(self, job_id: str) -> bool:
        """Cancel a job; return whether it is now certain never to take effect."""

    def tag(self, luid: str, tags: Collection[str]) -> None:
        """Add tags to a data source."""

    def untag(self, luid: str, tags: Collection[str]) -> None:
        """Remove tags from a data source."""

    def move(self, luid: str, *, name: str, project_id: str) -> RemoteDatasource:
        """Rename a data source, or move it to another project, or both.

        Raises:
            RefusedError: the name is taken there, or this user lacks permission.
        """

    def download(self, luid: str, folder: Path, *, limit: int | None = None) -> Path:
        """Download a data source with its extract, as a packaged file (`.tdsx`) in a folder.

        Args:
            limit: the bytes that it may have; by default, what its size on the server allows.

        Raises:
            RefusedError: this user lacks permission.
            RefreshError: it is larger, or takes too long.
        """

    def metadata(self, luid: str) -> Metadata:
        """Read the content of the data source's `.tds`."""

    def count(
        self,
        luid: str,
        keys: Mapping[str, str | None],
        *,
        ways: Mapping[str, CountWay] = MappingProxyType({}),
        fresh: bool = False,
    ) -> Mapping[str, Counted]:
        """Let the server count the rows of tables, by table name.

        A number may be too low, but never too high: the server counts the rows that this user may
        see, and what is left by the data source's own filters.

        Args:
            keys: the tables in the published file, and a column of each that holds no NULL; None
                if no such column is known.
            ways: the ways that worked before; they are tried first.
            fresh: the answer may not come from a cache.

        Raises:
            RefreshError: the server cannot count, or does not let this user ask.
        """

    def count_columns(
        self, luid: str, columns: Mapping[str, Mapping[str, bool]]
    ) -> Mapping[str, Mapping[str, ColumnCounts]]:
        """Let the server count the values of columns, by table and column.

        Args:
            columns: the columns by table, and whether the ends of their values are asked for.

        Raises:
            RefreshError: the server cannot count, or does not let this user ask.
        """


# How long a refresh waits.


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a refresh waits, in seconds.

    Attributes:
        claim: for another refresh of the same data source to end.
        job: for a job of the server to end, from its start.
        queue: for a job of the server to start.
        timestamp: until an update shows in the time stamp of the data source.
        first_poll: between two looks at a job; the pause grows up to `longest_poll`.
    """

    claim: float = 3600
    job: float = 7200
    queue: float = 7200
    timestamp: float = 5
    first_poll: float = 2
    longest_poll: float = 60
