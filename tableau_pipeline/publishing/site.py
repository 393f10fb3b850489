"""Make all requests of a refresh to one Tableau site, for one signed-in user."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Concatenate, ParamSpec, TypeVar
from urllib.parse import quote
from xml.etree import ElementTree

import defusedxml.ElementTree
import requests
import tableauserverclient as TSC

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.declaration import Project, project_path
from tableau_pipeline.core.drift import Job, JobKind, NoJob, RemoteDatasource
from tableau_pipeline.core.tableau_limits import LARGEST_PAYLOAD
from tableau_pipeline.errors import (
    NoProjectError,
    NotListedError,
    RefreshError,
    RefusedError,
    UnreadableError,
)
from tableau_pipeline.metadata.contents import Metadata, read_metadata
from tableau_pipeline.metadata.document import LARGEST
from tableau_pipeline.publishing import counts, job_list, packages, rest
from tableau_pipeline.publishing.errors import (
    DOWNLOAD_REMEDIES,
    MOVE_REMEDIES,
    PROJECT_REMEDIES,
    SESSION_GONE,
    SignInError,
    translate_errors,
    update_refused,
)
from tableau_pipeline.publishing.http import ServerClock
from tableau_pipeline.publishing.package_stream import read_tds
from tableau_pipeline.publishing.retries import RequestBudget
from tableau_pipeline.publishing.tsc_internals import RequestFactory
from tableau_pipeline.publishing.uploads import upload_file

_T = TypeVar("_T")
_P = ParamSpec("_P")

# A download may have at most this many bytes, if the server does not report the size of the file.
_LARGEST_DOWNLOAD = 10**10
_ANY_SIZE, _PIECE = 10**15, 2**16
_DATASOURCE_NOT_FOUND = {"404000", "404004", "404011"}
_PROJECT_EXISTS = "409006"
_TAG_NOT_FOUND = "404007"
_JOB_NOT_FOUND = {"400031", "404018"}
# Versions of the REST API. Updates exist since 3.13 (Tableau 2021.3), with larger payloads since
# 3.15 (2022.1). The publish mode Replace exists since 3.25 (2025.1).
_FIRST_WITH_UPDATES, _FIRST_WITH_LARGE_UPDATES, _FIRST_WITH_REPLACE = "3.13", "3.15", "3.25"


def _server_call(
    doing: str, *, remedies: Mapping[str, str] = MappingProxyType({})
) -> Callable[
    [Callable[Concatenate["TableauSite", _P], _T]], Callable[Concatenate["TableauSite", _P], _T]
]:
    """Return a decorator that runs a method in `ask`, to translate errors and renew the session.

    Args:
        doing: what the method does, for messages; {names} stand for arguments of the method.
        remedies: advice for messages; the keys are the server's error codes.
    """

    def decorate(
        method: Callable[Concatenate["TableauSite", _P], _T],
    ) -> Callable[Concatenate["TableauSite", _P], _T]:
        bind = signature(method).bind

        @wraps(method)
        def wrapper(self: "TableauSite", *args: _P.args, **settings: _P.kwargs) -> _T:
            arguments = bind(self, *args, **settings).arguments
            call = partial(method, self, *args, **settings)
            return self.ask(doing.format_map(arguments), call, remedies=remedies)

        return wrapper

    return decorate


@dataclass(frozen=True, slots=True)
class TableauSite:
    """A Tableau site, accessed through the Tableau Server Client library (TSC).

    A call signs in again, at most once, if the session has ended.

    Attributes:
        tsc: the TSC client.
        url: the URL of the server, without a trailing slash.
        site: the site's content URL; "" is the default site.
        sign_in: a function that signs in again.
        hide: a function that removes secrets from a text of the server, and shortens the text.
        release: the server's product version, build and REST API version, in words.
        may_count: whether the session may ask the server to count rows.
        budget: the number of requests that the session has sent, and their limit.
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
    _signing_in: Lock = field(default_factory=Lock)

    @property
    def user_id(self) -> str:
        """The LUID of the signed-in user."""
        return str(self.tsc.user_id)

    def user(self, luid: str = "") -> tuple[str, str]:
        """Return a user's name and site role; the LUID and "" if the server hides the user."""
        # By default, look up the signed-in user.
        luid = luid or self.user_id
        # If a connected app may not read users, the server answers that the session has ended.
        with suppress(SignInError):
            return self._user(luid)
        return luid, ""

    @_server_call("Asking for a user")
    def _user(self, luid: str) -> tuple[str, str]:
        with suppress(TSC.ServerResponseError):
            user = self.tsc.users.get_by_id(luid)
            return str(user.name), user.site_role or ""
        return luid, ""

    @_server_call("Listing the personal access tokens")
    def token_ends(self) -> Mapping[str, datetime]:
        """Return when this user's tokens expire, by token name; only Tableau Cloud reports this."""
        users = self.tsc.users
        with suppress(TSC.ServerResponseError):
            answer = users.get_request(f"{users.baseurl}/{self.user_id}/personal-access-tokens")
            root = defusedxml.ElementTree.fromstring(answer.content, forbid_dtd=True)
            tokens = root.iterfind(".//{*}personalAccessToken")
            ends = (
                (token.get("tokenName", ""), rest.parse_time(token.get("expiresAt")))
                for token in tokens
            )
            return {name: end for name, end in ends if end}
        return {}

    @_server_call("Listing the projects")
    def may_publish(self) -> Mapping[str, bool | None]:
        """Return by project id whether this user may publish there; None stands for unknown."""
        projects = rest.iterate(self.tsc.projects, rest.all_fields())
        return {str(project.id): project.writeable for project in projects}

    @property
    def payload_limit(self) -> int:
        """The largest payload of an update in bytes; 0 if the server does not support updates."""
        if not self.tsc.check_at_least_version(_FIRST_WITH_UPDATES):
            return 0
        is_large = self.tsc.check_at_least_version(_FIRST_WITH_LARGE_UPDATES)
        return LARGEST_PAYLOAD if is_large else LARGEST_PAYLOAD // 10

    @property
    def knows_replace(self) -> bool:
        """Whether the server's REST API has the publish mode Replace."""
        return self.tsc.check_at_least_version(_FIRST_WITH_REPLACE)

    def now(self) -> datetime:
        """Return the time of the server's clock; the result may be about a second behind."""
        if (now := self.clock.now()) is None:
            raise RefreshError(
                f"The answers of {self.url} lack a valid Date header. Does a proxy in between "
                "remove it?"
            )
        return now

    def find_project(self, project: Project) -> str | None:
        """Return the id of a project; None if it does not exist, or this user may not see it."""
        with suppress(NoProjectError):
            return self.project(project, create=False)
        return None

    def project(self, project: Project, *, create: bool) -> str:
        """Return the id of a project; if `create` is true, create the missing projects of its path.

        Raises:
            RefusedError: a project of the path is missing, and `create` is false.
        """
        return self.ask(
            f'Looking for project "{project_path(project)}"',
            lambda: self._project(project, create=create),
            remedies=PROJECT_REMEDIES,
        )

    def _project(self, project: Project, *, create: bool) -> str:
        # Compare the parents, too: names of projects are unique only within one parent.
        parent: str | None = None
        names = project if isinstance(project, tuple) else [*map(str.strip, project.split("/"))]
        for depth, name in enumerate(names):
            matches = rest.items_named(self.tsc.projects, name)
            item = next((match for match in matches if (match.parent_id or None) == parent), None)
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

    @_server_call("Looking for data source {luid}")
    def find_by_luid(self, luid: str) -> RemoteDatasource | None:
        """Return the data source; None if it does not exist.

        Raises:
            RefusedError: the data source exists, but this user may not read it.
        """
        item = self._item(luid)
        return rest.remote_datasource(self.tsc, item) if item else None

    @_server_call("Looking for data source {luid}")
    def updated_at(self, luid: str) -> datetime | None:
        """Return a data source's updatedAt, by one request; None if the data source is gone."""
        item = self._item(luid)
        return rest.valid_time(item, "updatedAt", item.updated_at) if item else None

    def _item(self, luid: str) -> TSC.DatasourceItem | None:
        try:
            return self.tsc.datasources.get_by_id(luid)
        except TSC.ServerResponseError as error:
            if error.code in _DATASOURCE_NOT_FOUND:
                return None
            raise

    @_server_call('Looking for data source "{name}"')
    def find_by_name(self, name: str, *, project_id: str) -> RemoteDatasource | None:
        """Return the data source with this name, regardless of case; None if it does not exist."""
        for item in rest.items_named(self.tsc.datasources, name):
            if item.project_id == project_id:
                return rest.remote_datasource(self.tsc, item)
        return None

    @_server_call('Listing the data sources with a tag "{prefix}..."')
    def tagged(self, prefix: str, *, revisions: bool = True) -> Sequence[RemoteDatasource]:
        """Return the data sources that have a tag with this prefix, and that this user may see.

        Args:
            revisions: whether to request the newest revision of each data source, one by one.
        """
        # Do not filter: a filter matches whole tags only, and cannot express the ":" in our tags.
        # Collect items by id: if the site changes between requests, an item may be on two pages.
        items = {str(item.id): item for item in rest.iterate(self.tsc.datasources)}
        return [
            rest.remote_datasource(self.tsc, item, revision=revisions)
            for item in items.values()
            if any(tag.startswith(prefix) for tag in item.tags)
        ]

    @_server_call("Listing the data sources of the project")
    def in_project(self, project_id: str) -> Sequence[RemoteDatasource]:
        """Return the data sources that this user may see in a project, sorted by name."""
        # Request all fields, because lists omit the sizes by default.
        everywhere = rest.iterate(self.tsc.datasources, rest.all_fields())
        items = {str(item.id): item for item in everywhere if item.project_id == project_id}
        listed = (rest.remote_datasource(self.tsc, item, revision=False) for item in items.values())
        return sorted(listed, key=lambda remote: (remote.name.casefold(), remote.luid))

    def refresh_tasks(self) -> Mapping[str, Sequence[rest.RefreshTask]] | None:
        """Return extract refresh tasks by data source LUID; None if this user may not see them."""
        with suppress(RefusedError, SignInError):
            return self.ask("Listing the refresh tasks", lambda: rest.refresh_tasks(self.tsc))
        return None

    def upload(self, file: Path, *, in_any_order: bool = False) -> str:
        """Upload a file; return the id of the upload, for one later call. See `upload_file`."""
        ask = partial(self.ask, f"Uploading {file.name}")
        return upload_file(file, self.tsc, ask, self.log, in_any_order=in_any_order)

    @_server_call('Publishing "{name}"')
    def publish(
        self, upload: str, *, name: str, project_id: str, mode: PublishMode, suffix: str = ".hyper"
    ) -> str:
        """Publish an uploaded file with this suffix; return the id of the server's job.

        Never repeat a request that may have arrived.

        Raises:
            RefusedError, NotAcceptedError: the server refused the request, which had no effect.
            RefreshError: the server failed or did not answer: it may have received the request.
        """
        item = TSC.DatasourceItem(project_id, name=name)
        request, content_type = RequestFactory.Datasource.publish_req_chunked(item)
        parameters = {
            "uploadSessionId": upload,
            "datasourceType": suffix.removeprefix("."),
            **({} if mode is PublishMode.CREATE else {mode.value: "true"}),
            # Ask for a job, whose status the next refresh can find out after an interruption.
            "asJob": "true",
        }
        # TSC's own call would upload the file again.
        endpoint = self.tsc.datasources
        answer = endpoint.post_request(
            endpoint.baseurl, request, content_type, parameters={"params": parameters}
        )
        jobs = TSC.JobItem.from_response(answer.content, self.tsc.namespace)
        if not jobs or not jobs[0].id:
            raise RefreshError(
                f'Publishing "{name}" as a job: the server accepted the request, but named no job. '
                "The next run finds out whether the file was published."
            )
        return str(jobs[0].id)

    @_server_call("Updating data source {luid}")
    def update(
        self,
        luid: str,
        *,
        batch: str,
        upload: str | None,
        request_id: str,
        connection: str | None = None,
    ) -> str | None:
        """Send a batch of actions. The server applies the batch once, as a whole or not at all.

        Args:
            batch: the body of the request, a JSON object with the list "actions".
            upload: the id of the uploaded `.hyper` file with the tables that the actions name.
            request_id: the id of the request. The server ignores a request with a known id.
            connection: the id of the connection to update, if there are several connections.

        Returns:
            The id of the server's job; None if the server names no job. The server may name no job
            if it has received the same request before.

        Raises:
            NoUpdatesError: this user may not update this data source. Nothing happened.
            BusyError: another job is changing the data source. Nothing happened.
            RefusedError, NotAcceptedError: the server refused for another reason. Nothing happened.
            RefreshError: the server failed or did not answer: it may have received the request.
        """
        self.tsc.assert_at_least_version(_FIRST_WITH_UPDATES, "Updating data")
        try:
            answer = self._patch(luid, batch, upload, request_id, connection)
        except TSC.ServerResponseError as error:
            if refusal := update_refused(error, luid, self.hide):
                raise refusal from error
            raise
        jobs = TSC.JobItem.from_response(answer.content, self.tsc.namespace)
        return jobs[0].id if jobs else None

    def _patch(
        self, luid: str, batch: str, upload: str | None, request_id: str, connection: str | None
    ) -> requests.Response:
        path = f"{luid}/connections/{connection}" if connection else luid
        # TSC's own call would upload the payload again.
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
        """Return a job, or the reason why the server does not show the job."""
        try:
            return self._job(job_id)
        except SignInError:
            # Before 2025.1, servers wrongly report to connected apps that the session has ended. If
            # another request succeeds, only the job is hidden.
            self.ask("Looking for data sources", partial(rest.probe, self.tsc))
            return NoJob.HIDDEN

    @_server_call("Asking for job {job_id}")
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
        """Return whether this user may ask for jobs by id."""
        # Ask for a job that never existed: the server still refuses a user who may not read jobs.
        return self.job("00000000-0000-4000-8000-000000000000") is not NoJob.HIDDEN

    def jobs(
        self, *, name: str, since: datetime, words: Mapping[str, JobKind] = MappingProxyType({})
    ) -> Sequence[Job] | None:
        """Return the jobs that may publish or update data sources with this name, in any project.

        Return None if the jobs are unknown, for one of two reasons. Often, only administrators may
        list jobs. Or an unfinished job has no title, so that it may be of any data source.

        Args:
            since: a time of the server's clock; the result lacks jobs that were created earlier.
            words: the kind of job for each word that earlier refreshes found in the job list.
        """
        items = self._listed_jobs(since)
        return None if items is None else job_list.jobs_possibly_of(name, items, words)

    def words_of_jobs(self, *, since: datetime) -> Mapping[str, str] | None:
        """Return the job list's word for each job's type, by job id; None if the list is hidden."""
        items = self._listed_jobs(since)
        return items if items is None else {str(item.id): item.type or "" for item in items}

    def _listed_jobs(self, since: datetime) -> Sequence[TSC.BackgroundJobItem] | None:
        """Return the jobs of the site; None if this user may not list them."""
        # Servers before 2025.3 never list jobs for connected apps, even in a new session.
        with suppress(SignInError):
            list_jobs = partial(job_list.list_jobs, self.tsc, since)
            return self.ask("Listing the jobs of the site", list_jobs)
        return None

    def cancel(self, job_id: str) -> bool:
        """Cancel a job; return whether the job is now certain to have no effect."""
        # Ignore a refusal, because the job may have ended. Only the status of the job counts.
        with suppress(RefusedError, SignInError):
            self.ask(f"Cancelling job {job_id}", lambda: self.tsc.jobs.cancel(job_id))
        status = self.job(job_id)
        if isinstance(status, NoJob):
            return False
        return status.outcome in (Outcome.FAILED, Outcome.CANCELLED)

    @_server_call("Tagging data source {luid}")
    def tag(self, luid: str, tags: Collection[str]) -> None:
        """Add tags to a data source."""
        endpoint = self.tsc.datasources
        endpoint.put_request(f"{endpoint.baseurl}/{luid}/tags", rest.tags_request(tags))

    @_server_call("Taking tags from data source {luid}")
    def untag(self, luid: str, tags: Collection[str]) -> None:
        """Remove tags from a data source; ignore tags that it does not have."""
        endpoint = self.tsc.datasources
        for tag in tags:
            try:
                # Before 0.42, TSC's call does not quote "/" in a tag, and stops at a missing tag.
                endpoint.delete_request(f"{endpoint.baseurl}/{luid}/tags/{quote(tag, safe='')}")
            except TSC.ServerResponseError as error:
                if error.code != _TAG_NOT_FOUND:
                    raise

    @_server_call('Renaming or moving the data source to "{name}"', remedies=MOVE_REMEDIES)
    def move(self, luid: str, *, name: str, project_id: str) -> None:
        """Give a data source this name and project; change nothing else.

        Raises:
            RefusedError: the name is taken in the project, or this user lacks permission.
        """
        # The server keeps values that a request omits. TSC's own call would also set the owner,
        # which not every user may do, and the certification, which a user may have just changed.
        endpoint, request = self.tsc.datasources, ElementTree.Element("tsRequest")
        datasource = ElementTree.SubElement(request, "datasource", name=name)
        ElementTree.SubElement(datasource, "project", id=project_id)
        endpoint.put_request(f"{endpoint.baseurl}/{luid}", ElementTree.tostring(request))

    @_server_call("Downloading data source {luid}", remedies=DOWNLOAD_REMEDIES)
    def download(self, luid: str, folder: Path, *, limit: int | None = None) -> Path:
        """Download a data source with its extract, as a packaged file (`.tdsx`) in a folder.

        Args:
            limit: the most bytes to download; by default, derived from the size on the server.

        Raises:
            RefusedError: this user lacks permission.
            RefreshError: the file is larger than the limit, or the download takes too long.
        """
        if limit is None:
            size = packages.megabytes_of(self.tsc, luid)
            # The server reports a rounded size, perhaps of the unpacked file: allow twice the size.
            limit = 2 * (size + 1) * 2**20 if size is not None else _LARGEST_DOWNLOAD
        with packages.open_content(self.tsc, luid, limit=limit) as answer:
            return packages.save_content(answer, folder / "content")

    @_server_call("Asking for the size of data source {luid}")
    def megabytes(self, luid: str) -> int | None:
        """Return the rounded size in units of 2^20 bytes; None if the server hides the size."""
        return packages.megabytes_of(self.tsc, luid)

    @_server_call("Deleting data source {luid}")
    def delete(self, luid: str) -> None:
        """Delete a data source for good.

        Raises:
            RefusedError: this user may not delete it.
        """
        self.tsc.datasources.delete(luid)

    @_server_call("Reading the metadata of data source {luid}")
    def metadata(self, luid: str) -> Metadata:
        """Download a data source up to the end of the `.tds`; return the metadata in the `.tds`."""
        try:
            # Even with extract=False, servers send a package, perhaps with rows: accept any size.
            with packages.open_content(self.tsc, luid, limit=_ANY_SIZE, extract=False) as answer:
                tds = read_tds(answer.iter_content(_PIECE), limit=LARGEST)
            return read_metadata(tds)
        except ValueError as error:
            raise UnreadableError(
                f"The server sent data source {luid} in a form that cannot be read: {error}."
            ) from error

    @_server_call("Counting the rows of data source {luid}")
    def count(
        self, luid: str, keys: Mapping[str, str | None], *, fresh: bool = False
    ) -> Mapping[str, int]:
        """Let the server count the rows of tables; return the numbers by table name.

        A number may be too low, but never too high. The server counts only the rows that this user
        may see, and that pass the data source's own filters.

        Args:
            keys: for each table in the published file, a column without NULL, whose values can be
                counted; None if no such column is known.
            fresh: whether to bypass the server's caches.

        Raises:
            RefreshError: the server cannot count, or does not let this user ask.
        """
        # Do not ask without this scope: the server would answer that the session has ended.
        if not self.may_count:
            raise RefreshError(
                "the token of the connected app lacks the scope tableau:viz_data_service:read; "
                "set reconcile: {by: server}, so that the pipeline requests this scope"
            )
        return counts.count_rows(self.tsc, luid, keys, fresh=fresh)

    def ask(
        self,
        doing: str,
        call: Callable[[], _T],
        *,
        remedies: Mapping[str, str] = MappingProxyType({}),
    ) -> _T:
        """Run a call and translate its errors. If the session has ended, renew it and call again.

        Args:
            doing: what the call does, for messages.
            remedies: advice for messages; the keys are the server's error codes.
        """
        with translate_errors(doing, url=self.url, hide=self.hide, remedies=remedies):
            used = self.tsc.auth_token
            try:
                return call()
            except TSC.FailedSignInError as error:
                if error.code not in SESSION_GONE:
                    raise
                self._renew_session(used, error)
                # The server has refused the first attempt, so the call cannot take effect twice.
                return call()

    def _renew_session(self, used: str | None, error: TSC.FailedSignInError) -> None:
        """Sign in again, unless another thread has replaced the token `used` since the call.

        Raises:
            FailedSignInError: the session is alive, so the error of the call has another cause.
        """
        with self._signing_in:
            if self.tsc.auth_token != used:
                return
            if rest.session_is_alive(self.tsc):
                raise error
            self.log.warning(
                'The session on site "%s" has ended: signing in again. If this happens often, '
                "the same token may be in use elsewhere: give each deployment a token of its own",
                self.site,
            )
            self.sign_in()
