"""One site of a Tableau Server, with one user signed in: all that a refresh asks of it."""

import gc
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

import defusedxml.ElementTree
import requests
import tableauserverclient as TSC
from tableauserverclient.server import RequestFactory

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.declaration import Project, project_path
from tableau_pipeline.core.drift import Job, JobKind, NoJob, RemoteDatasource
from tableau_pipeline.core.limits import LARGEST_PAYLOAD
from tableau_pipeline.errors import (
    NoProjectError,
    NotListedError,
    RefreshError,
    RefusedError,
    UnreadableError,
)
from tableau_pipeline.metadata.document import LARGEST, Metadata, read_metadata
from tableau_pipeline.publishing import counts, job_list, packages, rest
from tableau_pipeline.publishing.errors import (
    DOWNLOAD_REMEDIES,
    MOVE_REMEDIES,
    PROJECT_REMEDIES,
    SESSION_GONE,
    UPLOAD_REMEDIES,
    SignInError,
    translate_errors,
    update_refused,
)
from tableau_pipeline.publishing.http import RequestBudget, ServerClock
from tableau_pipeline.publishing.package_stream import tds_of
from tableau_pipeline.rendering import megabytes

_T = TypeVar("_T")
_P = ParamSpec("_P")

# Bytes of a file whose size the server does not tell.
_LARGEST_DOWNLOAD = 10**10
_ANY_SIZE, _PIECE = 10**15, 2**16
_DATASOURCE_NOT_FOUND = {"404000", "404004", "404011"}
_PROJECT_EXISTS = "409006"
_TAG_NOT_FOUND = "404007"
_JOB_NOT_FOUND = {"400031", "404018"}
# REST API versions: no updates before 2021.3 (3.13), a larger limit from 2022.1 (3.15), and mode
# Replace from 2025.1 (3.25).
_FIRST_WITH_UPDATES, _FIRST_WITH_LARGE_ONES, _FIRST_WITH_REPLACE = "3.13", "3.15", "3.25"


def _asks(
    doing: str, *, remedies: Mapping[str, str] = MappingProxyType({})
) -> Callable[
    [Callable[Concatenate["TableauSite", _P], _T]], Callable[Concatenate["TableauSite", _P], _T]
]:
    """Translate the errors of a method, and renew the session once if it has ended.

    Args:
        doing: what fails, with the method's arguments in braces.
        remedies: by the server's error codes.
    """

    def decorate(
        method: Callable[Concatenate["TableauSite", _P], _T],
    ) -> Callable[Concatenate["TableauSite", _P], _T]:
        bind = signature(method).bind

        @wraps(method)
        def asked(self: "TableauSite", *args: _P.args, **settings: _P.kwargs) -> _T:
            given = bind(self, *args, **settings).arguments
            call = partial(method, self, *args, **settings)
            return self.ask(doing.format_map(given), call, remedies=remedies)

        return asked

    return decorate


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
        release: of the server: product, build and REST API, in words.
        may_count: whether the session may let the server count.
        budget: how many requests it has sent, and may send.
    """

    tsc: TSC.Server
    url: str
    site: str
    sign_in: Callable[[], object]
    clock: ServerClock
    log: logging.Logger
    hide: Callable[[str], str]
    release: str = ""
    may_count: bool = True
    budget: RequestBudget = field(default_factory=RequestBudget)

    @property
    def user_id(self) -> str:
        """The LUID of the user signed in."""
        return str(self.tsc.user_id)

    def user(self, luid: str = "") -> tuple[str, str]:
        """Return name and site role of a user, or of who is signed in; id and "" if not told."""
        luid = luid or self.user_id
        # The session of a connected app that may not ask for users is said to have ended.
        with suppress(SignInError):
            return self._user(luid)
        return luid, ""

    @_asks("Asking for a user")
    def _user(self, luid: str) -> tuple[str, str]:
        with suppress(TSC.ServerResponseError):
            user = self.tsc.users.get_by_id(luid)
            return str(user.name), user.site_role or ""
        return luid, ""

    @_asks("Listing the personal access tokens")
    def token_ends(self) -> Mapping[str, datetime]:
        """Return when the tokens of this user end, by name; only Tableau Cloud tells it."""
        users = self.tsc.users
        with suppress(TSC.ServerResponseError):
            answer = users.get_request(f"{users.baseurl}/{self.user_id}/personal-access-tokens")
            root = defusedxml.ElementTree.fromstring(answer.content, forbid_dtd=True)
            found = root.iterfind(".//{*}personalAccessToken")
            ends = ((e.get("tokenName", ""), rest.moment(e.get("expiresAt"))) for e in found)
            return {name: end for name, end in ends if end}
        return {}

    @_asks("Listing the projects")
    def may_publish(self) -> Mapping[str, bool | None]:
        """Return whether this user may publish to each project, by id; None if that is not told."""
        found = rest.every(self.tsc.projects, rest.all_fields())
        return {str(each.id): each.writeable for each in found}

    @property
    def payload_limit(self) -> int:
        """The largest payload of an update in bytes; 0 if the server supports no updates."""
        if not self.tsc.check_at_least_version(_FIRST_WITH_UPDATES):
            return 0
        is_large = self.tsc.check_at_least_version(_FIRST_WITH_LARGE_ONES)
        return LARGEST_PAYLOAD if is_large else LARGEST_PAYLOAD // 10

    @property
    def knows_replace(self) -> bool:
        """Whether its version of the REST API has the publish mode Replace."""
        return self.tsc.check_at_least_version(_FIRST_WITH_REPLACE)

    def now(self) -> datetime:
        """Return the time by the server's own clock; a second or so late, never early."""
        if (now := self.clock.now()) is None:
            raise RefreshError(
                f"The answers of {self.url} lack a valid Date header. Does a proxy in between "
                "remove it?"
            )
        return now

    def find_project(self, project: Project) -> str | None:
        """Return the id of a project; None if there is none, or none that this user may see."""
        with suppress(NoProjectError):
            return self.project(project, create=False)
        return None

    def project(self, project: Project, *, create: bool) -> str:
        """Return the id of a project, after creating the missing part of its path if allowed.

        Raises:
            RefusedError: one on its path is missing, and `create` is false.
        """
        return self.ask(
            f'Looking for project "{project_path(project)}"',
            lambda: self._project(project, create=create),
            remedies=PROJECT_REMEDIES,
        )

    def _project(self, project: Project, *, create: bool) -> str:
        # Names are unique only within one parent.
        parent: str | None = None
        names = project if isinstance(project, tuple) else [*map(str.strip, project.split("/"))]
        for depth, name in enumerate(names):
            found = rest.named(self.tsc.projects, name)
            item = next((each for each in found if (each.parent_id or None) == parent), None)
            if item is None and not create:
                where = f'in "{"/".join(names[:depth])}"' if depth else "on the site"
                raise NoProjectError(
                    f'Project "{project_path(project)}": there is no project "{name}" {where}, or '
                    "this user may not see it. Create it, correct `project:`, or set "
                    "create_project: true."
                )
            parent = (item or self._new_project(name, parent)).id
        return str(parent)

    def _new_project(self, name: str, parent: str | None) -> TSC.ProjectItem:
        try:
            return self.tsc.projects.create(TSC.ProjectItem(name, parent_id=parent))
        except TSC.ServerResponseError as error:
            if error.code != _PROJECT_EXISTS:
                raise
            raise NotListedError(
                f'A project "{name}" is there already, but this user may not see it, or the '
                "server's lists do not show it yet. Run again, or give this user View on it."
            ) from error

    @_asks("Looking for data source {luid}")
    def find_by_luid(self, luid: str) -> RemoteDatasource | None:
        """Return the data source; None if there is none.

        Raises:
            RefusedError: it exists, but this user may not read it.
        """
        item = self._item(luid)
        return rest.remote_datasource(self.tsc, item) if item else None

    @_asks("Looking for data source {luid}")
    def updated_at(self, luid: str) -> datetime | None:
        """Return the time stamp of a data source by one request; None if there is none."""
        item = self._item(luid)
        return rest.valid_time(item, "updatedAt", item.updated_at) if item else None

    def _item(self, luid: str) -> TSC.DatasourceItem | None:
        try:
            return self.tsc.datasources.get_by_id(luid)
        except TSC.ServerResponseError as error:
            if error.code in _DATASOURCE_NOT_FOUND:
                return None
            raise

    @_asks('Looking for data source "{name}"')
    def find_by_name(self, name: str, *, project_id: str) -> RemoteDatasource | None:
        """Return the data source with this name, in any case of letters; None if there is none."""
        for item in rest.named(self.tsc.datasources, name):
            if item.project_id == project_id:
                return rest.remote_datasource(self.tsc, item)
        return None

    @_asks('Listing the data sources with a tag "{prefix}..."')
    def tagged(self, prefix: str, *, revisions: bool = True) -> Sequence[RemoteDatasource]:
        """Return the data sources with a tag that begins so, as far as this user may see them.

        Args:
            revisions: ask for the newest revision of each, a request for each.
        """
        # A filter compares whole tags, and ":" separates its parts, so the tags are compared here.
        # Another change of the site may put an item on two pages.
        items = {str(item.id): item for item in rest.every(self.tsc.datasources)}
        return [
            rest.remote_datasource(self.tsc, item, revision=revisions)
            for item in items.values()
            if any(tag.startswith(prefix) for tag in item.tags)
        ]

    @_asks("Listing the data sources of the project")
    def in_project(self, project_id: str) -> Sequence[RemoteDatasource]:
        """Return the data sources in a project, as far as this user may see them, by name."""
        # Their sizes are none of the fields that lists have by themselves.
        everywhere = rest.every(self.tsc.datasources, rest.all_fields())
        found = {str(each.id): each for each in everywhere if each.project_id == project_id}
        listed = (rest.remote_datasource(self.tsc, each, revision=False) for each in found.values())
        return sorted(listed, key=lambda each: (each.name.casefold(), each.luid))

    def refresh_tasks(self) -> Mapping[str, Sequence[rest.RefreshTask]] | None:
        """Return the tasks that refresh extracts, by LUID; None if this user may not list them."""
        with suppress(RefusedError, SignInError):
            return self.ask("Listing the refresh tasks", lambda: rest.refresh_tasks(self.tsc))
        return None

    def upload(self, file: Path) -> str:
        """Upload a file, which changes nothing yet; return the id by which one call may use it."""
        doing = f"Uploading {file.name}"
        size, sent = file.stat().st_size, 0
        block_size = rest.block_size(size)
        upload = self.ask(doing, self.tsc.fileuploads.initiate, remedies=UPLOAD_REMEDIES)
        with file.open("rb") as opened:
            while block := opened.read(block_size):
                self.ask(doing, partial(self._append, upload, block))
                # The answer and its request refer to each other, which keeps the block in memory.
                gc.collect(1)
                sent += len(block)
                of = f" of {megabytes(size)}" if sent < size else ""
                self.log.info("Uploaded %s%s", megabytes(sent), of)
        return upload

    def _append(self, upload: str, block: bytes) -> None:
        request, content_type = RequestFactory.Fileupload.chunk_req(block)
        self.tsc.fileuploads.append(upload, request, content_type)

    @_asks('Publishing "{name}"')
    def publish(
        self, upload: str, *, name: str, project_id: str, mode: PublishMode, suffix: str = ".hyper"
    ) -> str:
        """Publish an uploaded file with this suffix. The request is never sent twice.

        Returns:
            The id of the job.

        Raises:
            RefusedError: the server refused the request; nothing happened.
            RefreshError: the server failed or did not answer: it may have received the request.
        """
        item = TSC.DatasourceItem(project_id, name=name)
        request, content_type = RequestFactory.Datasource.publish_req_chunked(item)
        parameters = {
            "uploadSessionId": upload,
            "datasourceType": suffix.removeprefix("."),
            **({} if mode is PublishMode.CREATE else {mode.value: "true"}),
            # Only a job can be asked about later, if the refresh is interrupted meanwhile.
            "asJob": "true",
        }
        # TSC's own call would also upload the file, which has already been done.
        endpoint = self.tsc.datasources
        answer = endpoint.post_request(
            endpoint.baseurl, request, content_type, parameters={"params": parameters}
        )
        jobs = TSC.JobItem.from_response(answer.content, self.tsc.namespace)
        if not jobs or not jobs[0].id:
            raise RefreshError(
                f'Publishing "{name}" as a job: the server accepted it, but named no job. The next '
                "run finds out what it did."
            )
        return str(jobs[0].id)

    @_asks("Updating data source {luid}")
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
            NoUpdatesError: the server lets this user not update this data source.
            BusyError: another job changes it now.
            RefusedError: the server refused the request for another reason. In these three cases,
                nothing happened.
            RefreshError: the server failed or did not answer: it may have received the request.
        """
        self.tsc.assert_at_least_version(_FIRST_WITH_UPDATES, "Updating data")
        try:
            answer = self._patch(luid, batch, upload, request_id, connection)
        except TSC.ServerResponseError as error:
            if refused := update_refused(error, luid, self.hide):
                raise refused from error
            raise
        jobs = TSC.JobItem.from_response(answer.content, self.tsc.namespace)
        return jobs[0].id if jobs else None

    def _patch(
        self, luid: str, batch: str, upload: str | None, request_id: str, connection: str | None
    ) -> requests.Response:
        path = f"{luid}/connections/{connection}" if connection else luid
        # TSC's own call would also upload the payload, which has already been done.
        endpoint = self.tsc.datasources
        return endpoint.patch_request(
            f"{endpoint.baseurl}/{path}/data",
            batch.encode(),
            "application/json",
            parameters={
                "headers": {"requestid": request_id},
                "params": {"uploadSessionId": upload} if upload else {},
            },
        )

    def job(self, job_id: str) -> Job | NoJob:
        """Return a job, or why the server tells nothing of it."""
        try:
            return self._job(job_id)
        except SignInError:
            # Servers before 2025.1 answer connected apps so, in a session that reads.
            self.ask("Looking for data sources", partial(rest.one_datasource, self.tsc))
            return NoJob.HIDDEN

    @_asks("Asking for job {job_id}")
    def _job(self, job_id: str) -> Job | NoJob:
        try:
            job = rest.job(self.tsc, job_id)
        except TSC.ServerResponseError as error:
            if error.code in _JOB_NOT_FOUND:
                return NoJob.GONE
            if error.code.startswith("403"):
                return NoJob.HIDDEN
            raise
        return replace(job, notes=self.hide(job.notes))

    def may_read_jobs(self) -> bool:
        """Return whether this user may ask for jobs by their ids."""
        # A user who may not is told so of any job, also of one that there never was.
        return self.job("00000000-0000-4000-8000-000000000000") is not NoJob.HIDDEN

    def jobs(
        self, *, name: str, since: datetime, words: Mapping[str, JobKind] = MappingProxyType({})
    ) -> Sequence[Job] | None:
        """Return the jobs that may publish or update data sources with this name, in any project.

        None if the server does not tell: this user may not list the jobs of the site, as usually
        only administrators may; or see `job_list.may_be_of`.

        Args:
            since: by the server's clock; jobs created before are left out.
            words: for kinds of jobs, as this site was seen to use them.
        """
        found = self._listed_jobs(since)
        return None if found is None else job_list.may_be_of(name, found, words)

    def words_of_jobs(self, *, since: datetime) -> Mapping[str, str] | None:
        """Return the words for the kinds of listed jobs, by id; None if this user may list none."""
        listed = self._listed_jobs(since)
        return listed if listed is None else {str(e.id): e.type or "" for e in listed}

    def _listed_jobs(self, since: datetime) -> Sequence[TSC.BackgroundJobItem] | None:
        """The jobs of the site; None if this user may not list them."""
        # Servers before 2025.3 never list jobs for connected apps, even in a new session.
        with suppress(SignInError):
            list_jobs = partial(job_list.listed, self.tsc, since)
            return self.ask("Listing the jobs of the site", list_jobs)
        return None

    def cancel(self, job_id: str) -> bool:
        """Cancel a job; return whether it is now certain never to take effect."""
        # A refusal may mean that the job has ended or is not ours. Only its status counts.
        with suppress(RefusedError, SignInError):
            self.ask(f"Cancelling job {job_id}", lambda: self.tsc.jobs.cancel(job_id))
        status = self.job(job_id)
        if isinstance(status, NoJob):
            return False
        return status.outcome in (Outcome.FAILED, Outcome.CANCELLED)

    @_asks("Tagging data source {luid}")
    def tag(self, luid: str, tags: Collection[str]) -> None:
        """Add tags to a data source."""
        endpoint = self.tsc.datasources
        endpoint.put_request(f"{endpoint.baseurl}/{luid}/tags", rest.tags_request(tags))

    @_asks("Taking tags from data source {luid}")
    def untag(self, luid: str, tags: Collection[str]) -> None:
        """Remove tags from a data source; one that is gone already is none that is left."""
        endpoint = self.tsc.datasources
        for each in tags:
            try:
                # Before 0.42, TSC leaves "/" in a tag as it is, and stops at one that is gone.
                endpoint.delete_request(f"{endpoint.baseurl}/{luid}/tags/{quote(each, safe='')}")
            except TSC.ServerResponseError as error:
                if error.code != _TAG_NOT_FOUND:
                    raise

    @_asks('Renaming or moving the data source to "{name}"', remedies=MOVE_REMEDIES)
    def move(self, luid: str, *, name: str, project_id: str) -> RemoteDatasource:
        """Rename a data source, or move it to another project, or both; nothing else changes.

        Raises:
            RefusedError: the name is taken there, or this user lacks permission.
        """
        endpoint = self.tsc.datasources
        found = endpoint.get_by_id(luid)
        # The server keeps what a request does not name. TSC's own call would also name the owner,
        # which not every user may set, and TSC always names whether a data source is certified.
        wanted = TSC.DatasourceItem(project_id, name=name)
        wanted.certified = bool(found.certified)
        wanted.certification_note = found.certification_note
        request = RequestFactory.Datasource.update_req(wanted)
        endpoint.put_request(f"{endpoint.baseurl}/{luid}", request)
        # The answer may lack the values that did not change.
        return rest.remote_datasource(self.tsc, endpoint.get_by_id(luid))

    @_asks("Downloading data source {luid}", remedies=DOWNLOAD_REMEDIES)
    def download(self, luid: str, folder: Path, *, limit: int | None = None) -> Path:
        """Download a data source with its extract, as a packaged file (`.tdsx`) in a folder.

        Args:
            limit: the bytes that it may have; by default, what its size on the server allows.

        Raises:
            RefusedError: this user lacks permission.
            RefreshError: it is larger, or takes too long.
        """
        if limit is None:
            size = packages.megabytes_of(self.tsc, luid)
            # It is rounded, and may be that of the file before or after it is packed.
            limit = 2 * (size + 1) * 2**20 if size is not None else _LARGEST_DOWNLOAD
        with packages.content(self.tsc, luid, limit=limit) as answer:
            return packages.save_content(answer, folder / "content")

    @_asks("Asking for the size of data source {luid}")
    def megabytes(self, luid: str) -> int | None:
        """Return its size in units of 2^20 bytes, rounded; None if the server does not tell."""
        return packages.megabytes_of(self.tsc, luid)

    @_asks("Deleting data source {luid}")
    def delete(self, luid: str) -> None:
        """Delete a data source for good.

        Raises:
            RefusedError: this user may not.
        """
        self.tsc.datasources.delete(luid)

    @_asks("Reading the metadata of data source {luid}")
    def metadata(self, luid: str) -> Metadata:
        """Read the content of the data source's `.tds`, and nothing that comes after it."""
        try:
            # A server sends a package also without its extract, and perhaps with its data.
            with packages.content(self.tsc, luid, limit=_ANY_SIZE, extract=False) as answer:
                tds = tds_of(answer.iter_content(_PIECE), limit=LARGEST)
            return read_metadata(tds)
        except ValueError as error:
            raise UnreadableError(
                f"The server sent data source {luid} in a form that cannot be read: {error}."
            ) from error

    @_asks("Counting the rows of data source {luid}")
    def count(
        self,
        luid: str,
        keys: Mapping[str, str | None],
        *,
        fresh: bool = False,
    ) -> Mapping[str, int]:
        """Let the server count the rows of tables, by table name.

        A number may be too low, but never too high: the server counts the rows that this user may
        see, and what is left by the data source's own filters.

        Args:
            keys: the tables in the published file, and a column of each that holds no NULL; None
                if no such column is known.
            fresh: the answer may not come from a cache.

        Raises:
            RefreshError: the server cannot count, or does not let this user ask.
        """
        # The server would answer as if the session had ended.
        if not self.may_count:
            raise RefreshError(
                "the token of the connected app lacks the scope tableau:viz_data_service:read; "
                "reconcile: {by: server} asks for it"
            )
        return counts.count_rows(self.tsc, luid, keys, fresh=fresh)

    def ask(
        self,
        doing: str,
        call: Callable[[], _T],
        *,
        remedies: Mapping[str, str] = MappingProxyType({}),
    ) -> _T:
        """Translate the errors of a call, and renew the session once if it has ended.

        Args:
            doing: what fails.
            remedies: by the server's error codes.
        """
        with translate_errors(doing, url=self.url, hide=self.hide, remedies=remedies):
            try:
                return call()
            except TSC.FailedSignInError as error:
                if error.code not in SESSION_GONE or rest.reads(self.tsc):
                    raise
                self.log.warning(
                    'The session on site "%s" has ended: signing in again. If this happens often, '
                    "the same token may be in use elsewhere: give each deployment a token of its "
                    "own",
                    self.site,
                )
                # The server does nothing without a session: the call cannot take effect twice.
                self.sign_in()
                return call()
