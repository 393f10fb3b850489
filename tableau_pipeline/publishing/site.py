"""One site of a Tableau Server, with one user signed in: all that a refresh asks of it."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import tableauserverclient as TSC

from tableau_pipeline.core.checkpoint import ColumnCounts, Counted, CountWay, Outcome, PublishMode
from tableau_pipeline.core.declaration import Project, megabytes, project_path
from tableau_pipeline.core.server import Job, Metadata, RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing import counts, rest
from tableau_pipeline.publishing.errors import (
    SESSION_GONE,
    UPLOAD_REMEDIES,
    SignInError,
    translate_errors,
)
from tableau_pipeline.publishing.http import ServerClock

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TableauSite:
    """A site, on the Tableau Server Client library (TSC).

    The session is renewed at most once in each call if it has ended.

    Attributes:
        tsc: the TSC client.
        url: of the server, without a trailing slash.
        site: the site's content URL; "" is the default site.
        sign_in: renews the session.
        hide: takes the secrets from a message of the server, and what is too long in it.
        may_count: whether the session may let the server count.
    """

    tsc: TSC.Server
    url: str
    site: str
    sign_in: Callable[[], object]
    clock: ServerClock
    log: logging.Logger
    hide: Callable[[str], str]
    may_count: bool = True

    @property
    def user_id(self) -> str:
        """The LUID of the user signed in."""
        return str(self.tsc.user_id)

    @property
    def payload_limit(self) -> int:
        """The largest payload of an update in bytes; 0 if the server supports no updates."""
        return rest.payload_limit(self.tsc)

    def now(self) -> datetime:
        """Return the time by the server's own clock; a second or so late, never early."""
        if self.clock.now() is None:
            self._ask("Asking for the time", self.tsc.server_info.get)
        if (now := self.clock.now()) is None:
            raise RefreshError(
                f"The answers of {self.url} lack a valid Date header. Does a proxy in between "
                "remove it?"
            )
        return now

    def find_project(self, project: Project) -> str | None:
        """Return the id of a project; None if there is none."""
        return self._ask(
            f'Looking for project "{project_path(project)}"',
            lambda: rest.find_project(self.tsc, project),
        )

    def project(self, project: Project, *, create: bool) -> str:
        """Return the id of a project, which must exist unless it may be created.

        Raises:
            RefusedError: it does not exist, and may not be created.
        """
        return self._ask(
            f'Looking for project "{project_path(project)}"',
            lambda: rest.project_id(self.tsc, project, create=create),
        )

    def find_by_luid(self, luid: str) -> RemoteDatasource | None:
        """Return the data source; None if there is none.

        Raises:
            RefusedError: it exists, but this user may not read it.
        """
        return self._ask(
            f"Looking for data source {luid}", lambda: rest.find_by_luid(self.tsc, luid)
        )

    def updated_at(self, luid: str) -> datetime | None:
        """Return the time stamp of a data source by one request; None if there is none."""
        return self._ask(f"Looking for data source {luid}", lambda: rest.updated_at(self.tsc, luid))

    def find_by_name(self, name: str, *, project_id: str) -> RemoteDatasource | None:
        """Return the data source with this name, in any case of letters; None if there is none."""
        return self._ask(
            f'Looking for data source "{name}"',
            lambda: rest.find_by_name(self.tsc, name, project_id=project_id),
        )

    def tagged(self, prefix: str) -> Sequence[RemoteDatasource]:
        """Return the data sources with a tag that begins so, as far as this user may see them."""
        return self._ask(
            f'Listing the data sources with a tag "{prefix}..."',
            lambda: rest.tagged(self.tsc, prefix),
        )

    def upload(self, file: Path) -> str:
        """Upload a file, which changes nothing yet; return the id by which one call may use it."""
        doing = f"Uploading {file.name}"
        size, sent = file.stat().st_size, 0
        block_size = rest.block_size(size)
        upload = self._ask(doing, self.tsc.fileuploads.initiate, remedies=UPLOAD_REMEDIES)
        for block in rest.blocks(file, block_size):
            self._ask(doing, lambda block=block: rest.send_block(self.tsc, upload, block))
            sent += len(block)
            of = f" of {megabytes(size)}" if sent < size else ""
            self.log.info("Uploaded %s%s", megabytes(sent), of)
        return upload

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
        return self._ask(
            f'Publishing "{name}"',
            lambda: rest.publish(
                self.tsc,
                upload,
                file_type=file_type,
                name=name,
                project_id=project_id,
                mode=mode,
            ),
        )

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
        return self._ask(
            f"Updating data source {luid}",
            lambda: rest.send_update(
                self.tsc,
                luid,
                batch=batch,
                upload=upload,
                request_id=request_id,
                connection=connection,
            ),
        )

    def job(self, job_id: str) -> Job | None:
        """Return a job; None if the server no longer knows it, or hides it from this user."""
        job = self._ask(f"Asking for job {job_id}", lambda: rest.find_job(self.tsc, job_id))
        return job and replace(job, notes=self.hide(job.notes))

    def jobs(self, *, name: str, since: datetime) -> Sequence[Job] | None:
        """Return the updates and publishes of data sources with this name, in any project.

        None if this user may not list the jobs of the site; usually only administrators may.

        Args:
            since: by the server's clock; jobs created before are left out.
        """
        # Servers before 2025.3 never list jobs for connected apps, even in a new session.
        with suppress(SignInError):
            return self._ask(
                f'Asking for the jobs of "{name}"',
                lambda: rest.jobs_on(self.tsc, name=name, since=since),
            )
        return None

    def cancel(self, job_id: str) -> bool:
        """Cancel a job; return whether it is now certain never to take effect."""
        # A refusal may mean that the job has ended or is not ours. Only its status counts.
        with suppress(RefusedError, SignInError):
            self._ask(f"Cancelling job {job_id}", lambda: self.tsc.jobs.cancel(job_id))
        status = self.job(job_id)
        return status is not None and status.outcome in (Outcome.FAILED, Outcome.CANCELLED)

    def tag(self, luid: str, tags: Collection[str]) -> None:
        """Add tags to a data source."""
        self._ask(f"Tagging data source {luid}", lambda: self.tsc.datasources.add_tags(luid, tags))

    def untag(self, luid: str, tags: Collection[str]) -> None:
        """Remove tags from a data source."""
        self._ask(
            f"Taking tags from data source {luid}",
            lambda: self.tsc.datasources.delete_tags(luid, tags),
        )

    def move(self, luid: str, *, name: str, project_id: str) -> RemoteDatasource:
        """Rename a data source, or move it to another project, or both.

        Raises:
            RefusedError: the name is taken there, or this user lacks permission.
        """
        return self._ask(
            f'Moving data source {luid} to "{name}" in project {project_id}',
            lambda: rest.move(self.tsc, luid, name=name, project_id=project_id),
        )

    def download(self, luid: str, folder: Path, *, limit: int | None = None) -> Path:
        """Download a data source with its extract, as a packaged file (`.tdsx`) in a folder.

        Args:
            limit: the bytes that it may have; by default, what its size on the server allows.

        Raises:
            RefusedError: this user lacks permission.
            RefreshError: it is larger, or takes too long.
        """
        return self._ask(
            f"Downloading data source {luid}",
            lambda: rest.download(self.tsc, luid, folder, limit=limit),
        )

    def metadata(self, luid: str) -> Metadata:
        """Read the content of the data source's `.tds`."""
        return self._ask(
            f"Reading the metadata of data source {luid}",
            lambda: rest.metadata(self.tsc, luid),
        )

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
        self._check_may_count()
        return self._ask(
            f"Counting the rows of data source {luid}",
            lambda: counts.count_rows(self.tsc, luid, keys, ways=ways, fresh=fresh),
        )

    def count_columns(
        self, luid: str, columns: Mapping[str, Mapping[str, bool]]
    ) -> Mapping[str, Mapping[str, ColumnCounts]]:
        """Let the server count the values of columns, by table and column.

        Args:
            columns: the columns by table, and whether the ends of their values are asked for.

        Raises:
            RefreshError: the server cannot count, or does not let this user ask.
        """
        self._check_may_count()
        return self._ask(
            f"Counting the values of data source {luid}",
            lambda: counts.count_columns(self.tsc, luid, columns),
        )

    def _check_may_count(self) -> None:
        # The server would answer as if the session had ended.
        if not self.may_count:
            raise RefreshError(
                "the token of the connected app lacks the scope tableau:viz_data_service:read; "
                "reconcile: {by: server} asks for it"
            )

    def _ask(
        self,
        doing: str,
        call: Callable[[], _T],
        *,
        remedies: Mapping[str, str] = MappingProxyType({}),
    ) -> _T:
        with translate_errors(doing, url=self.url, hide=self.hide, remedies=remedies):
            try:
                return call()
            except TSC.FailedSignInError as error:
                if error.code not in SESSION_GONE:
                    raise
                # Without a session the server carries nothing out, so the call cannot take effect
                # twice.
                self.sign_in()
                return call()
