"""Find, publish, move and read the data sources on a server."""

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import tableauserverclient as TSC
from tableauserverclient.server import RequestFactory
from tableauserverclient.server.endpoint.exceptions import NonXMLResponseError

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.declaration import Project, ProjectLuid, megabytes, project_path
from tableau_pipeline.core.server import Job, Metadata, RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.http import downloads_up_to
from tableau_pipeline.publishing.tds import LARGEST, read_metadata

# Look up items by name.


# The largest page that Tableau returns.
_PAGE_SIZE = 1000
# No site has a million items of a kind.
_MOST_PAGES = 1000
# In a filter these characters end a value or begin another one.
_NOT_IN_FILTERS = frozenset(",&:[]")


def every(endpoint: Any, options: TSC.RequestOptions | None = None) -> Iterator[Any]:
    """Yield the items of a TSC endpoint, page by page.

    TSC's own `filter()` and `all()` treat most errors as the end of the list. With them, a data
    source would seem not to exist when the server is merely too busy to answer. Its `Pager` would
    ask a server that counts wrong for ever.
    """
    options = options or TSC.RequestOptions()
    options.pagesize = _PAGE_SIZE
    page_of = getattr(endpoint, "get", endpoint)
    for number in range(1, _MOST_PAGES + 1):
        options.pagenumber = number
        items, page = page_of(options)
        yield from items
        if page.page_size * number >= page.total_available:
            return
        if page.page_size < 1 or not items:
            break
    raise NonXMLResponseError(
        f"page {number} of a list has {len(items)} items, and {page.total_available} are said to be"
    )


def named(endpoint: Any, name: str) -> Iterator[Any]:
    """Yield the items of a TSC endpoint that may have this name; callers compare names themselves.

    It yields the matches of the server's filter first, then all items: to Tableau names that differ
    only in case are equal, but not to its filters, and a filter cannot contain every name.
    """
    if not _NOT_IN_FILTERS & set(name):
        options = TSC.RequestOptions()
        options.filter.add(
            TSC.Filter(TSC.RequestOptions.Field.Name, TSC.RequestOptions.Operator.Equals, name)
        )
        yield from every(endpoint, options)
    yield from every(endpoint)


def same_name(one: str | None, other: str | None) -> bool:
    """Whether two names are equal to Tableau."""
    return (one or "").casefold() == (other or "").casefold()


_MODES = {
    PublishMode.CREATE: TSC.Server.PublishMode.CreateNew,
    PublishMode.REPLACE: TSC.Server.PublishMode.Replace,
    PublishMode.OVERWRITE: TSC.Server.PublishMode.Overwrite,
}
# Bytes of a file whose size the server does not tell.
_LARGEST_DOWNLOAD = 10**10
_DATASOURCE_NOT_FOUND = {"404000", "404004", "404011"}


def find_by_luid(server: TSC.Server, luid: str) -> RemoteDatasource | None:
    """Return a data source; None if there is none. Missing permission to read it is an error."""
    item = _item(server, luid)
    return _remote(server, item) if item else None


def updated_at(server: TSC.Server, luid: str) -> datetime | None:
    """Return the time stamp of a data source; None if there is none."""
    item = _item(server, luid)
    return _time(item, "updatedAt", item.updated_at) if item else None


def find_by_name(server: TSC.Server, name: str, *, project_id: str) -> RemoteDatasource | None:
    """Return the data source with this name in a project, in any case of letters, or None."""
    for item in named(server.datasources, name):
        if same_name(item.name, name) and item.project_id == project_id:
            return _remote(server, item)
    return None


def tagged(server: TSC.Server, prefix: str) -> list[RemoteDatasource]:
    """Return the data sources with a tag that begins so."""
    # A filter compares whole tags, and ":" separates its parts, so the tags are compared here.
    # Another change of the site may put an item on two pages.
    items = {str(item.id): item for item in every(server.datasources)}
    return [
        _remote(server, item)
        for item in items.values()
        if any(tag.startswith(prefix) for tag in item.tags)
    ]


def publish(
    server: TSC.Server,
    upload: str,
    *,
    file_type: str,
    name: str,
    project_id: str,
    mode: PublishMode,
) -> str:
    """Publish an uploaded file; return the id of the job."""
    item = TSC.DatasourceItem(project_id, name=name)
    request, content_type = RequestFactory.Datasource.publish_req_chunked(item)
    parameters = {
        "uploadSessionId": upload,
        "datasourceType": file_type,
        _MODES[mode].lower(): "true",
        # Only a job can be asked about later, if the refresh is interrupted meanwhile.
        "asJob": "true",
    }
    # TSC's own call would also upload the file, which has already been done.
    answer = server.datasources.post_request(
        server.datasources.baseurl, request, content_type, parameters={"params": parameters}
    )
    jobs = TSC.JobItem.from_response(answer.content, server.namespace)
    if not jobs or not jobs[0].id:
        raise RefreshError(
            f'Publishing "{name}" as a job: the server accepted it, but named no job. The next run '
            "finds out what it did."
        )
    return str(jobs[0].id)


def move(server: TSC.Server, luid: str, *, name: str, project_id: str) -> RemoteDatasource:
    """Rename a data source, or move it to another project, or both; nothing else changes."""
    found = server.datasources.get_by_id(luid)
    # The server keeps what a request does not name. TSC's own call would also name the owner, which
    # not every user may set, and TSC always names whether a data source is certified.
    wanted = TSC.DatasourceItem(project_id, name=name)
    wanted.certified = bool(found.certified)
    wanted.certification_note = found.certification_note
    request = RequestFactory.Datasource.update_req(wanted)
    server.datasources.put_request(f"{server.datasources.baseurl}/{luid}", request)
    # The answer may lack the values that did not change.
    return _remote(server, server.datasources.get_by_id(luid))


def download(server: TSC.Server, luid: str, folder: Path, *, limit: int | None) -> Path:
    """Save a data source as a `.tdsx` file of at most `limit` bytes."""
    if limit is None:
        size = server.datasources.get_by_id(luid).size
        # The number is rounded, and may be that of the file before or after it is packed.
        limit = 2 * (size + 1) * 2**20 if size is not None else _LARGEST_DOWNLOAD
    with downloads_up_to(limit):
        return Path(server.datasources.download(luid, folder))


def metadata(server: TSC.Server, luid: str) -> Metadata:
    """Read the content of the data source's `.tds`."""
    with TemporaryDirectory() as folder:
        with downloads_up_to(LARGEST):
            file = Path(server.datasources.download(luid, folder, include_extract=False))
        try:
            return read_metadata(file)
        except ValueError as error:
            raise RefreshError(
                f"The server sent data source {luid} in a form that cannot be read: {error}."
            ) from error


def _item(server: TSC.Server, luid: str) -> TSC.DatasourceItem | None:
    try:
        return server.datasources.get_by_id(luid)
    except TSC.ServerResponseError as error:
        if error.code in _DATASOURCE_NOT_FOUND:
            return None
        raise


def _remote(server: TSC.Server, item: TSC.DatasourceItem) -> RemoteDatasource:
    return RemoteDatasource(
        luid=str(item.id),
        name=str(item.name),
        project_id=str(item.project_id),
        owner_id=str(item.owner_id),
        created_at=_time(item, "createdAt", item.created_at),
        updated_at=_time(item, "updatedAt", item.updated_at),
        revision=_newest_revision(server, item),
        megabytes=item.size,
        tags=frozenset(item.tags or ()),
        link=item.webpage_url,
    )


def _time(item: TSC.DatasourceItem, name: str, value: datetime | None) -> datetime:
    if value is None:
        raise RefreshError(f"The server reports no valid {name} for data source {item.id}.")
    return value


def _newest_revision(server: TSC.Server, item: TSC.DatasourceItem) -> int | None:
    def page(
        options: TSC.RequestOptions | None,
    ) -> tuple[list[TSC.RevisionItem], TSC.PaginationItem]:
        answer = server.datasources.get_request(
            f"{server.datasources.baseurl}/{item.id}/revisions", options
        ).content
        # TSC's own call reads only the first page, but the newest revision may be on the last one.
        return (
            TSC.RevisionItem.from_response(answer, server.namespace, item),
            TSC.PaginationItem.from_response(answer, server.namespace),
        )

    newest = None
    try:
        for revision in every(page):
            number = int(revision.revision_number)
            if revision.current:
                return number
            newest = max(number, newest or 0)
    except TSC.ServerResponseError as error:
        # The site keeps no revisions, or this user may not see them.
        if error.code.startswith("403"):
            return None
        raise
    return newest


# Find, list and cancel the jobs of a server.


_JOB_NOT_FOUND = {"400031", "404018"}
_FORBIDDEN = "403"
_FINISHED = {
    TSC.JobItem.FinishCode.Success: Outcome.DONE,
    TSC.JobItem.FinishCode.Completed: Outcome.DONE,
    TSC.JobItem.FinishCode.Cancelled: Outcome.CANCELLED,
}
_OUTCOMES = {
    TSC.BackgroundJobItem.Status.Success: Outcome.DONE,
    TSC.BackgroundJobItem.Status.Failed: Outcome.FAILED,
    TSC.BackgroundJobItem.Status.Cancelled: Outcome.CANCELLED,
}
# Tableau spells this kind UpdateUploadedFile or update_uploaded_file, depending on the call.
_KINDS: dict[str, Literal["update", "publish"]] = {
    "updateuploadedfile": "update",
    "publishdatasource": "publish",
}


def find_job(server: TSC.Server, job_id: str) -> Job | None:
    """Return a job; None if the server no longer knows it, or hides it from this user."""
    try:
        job = server.jobs.get_by_id(job_id)
    except TSC.ServerResponseError as error:
        if error.code in _JOB_NOT_FOUND or error.code.startswith(_FORBIDDEN):
            return None
        raise
    return Job(
        id=job_id,
        outcome=_outcome(job),
        notes=" ".join(_notes(job)),
        created_at=job.created_at,
        started_at=job.started_at,
        completed_at=job.completed_at,
    )


def jobs_on(server: TSC.Server, *, name: str, since: datetime) -> Sequence[Job] | None:
    """List publishes and data updates of data sources with this name; None if not permitted."""
    options = TSC.RequestOptions()
    options.filter.add(
        TSC.Filter(
            TSC.RequestOptions.Field.CreatedAt,
            TSC.RequestOptions.Operator.GreaterThanOrEqual,
            since,
        )
    )
    try:
        found = list(every(server.jobs, options))
    except TSC.ServerResponseError as error:
        if error.code.startswith(_FORBIDDEN):
            return None
        raise
    return [
        Job(str(job.id), _OUTCOMES.get(job.status), kind, created_at=job.created_at)
        for job in found
        if (kind := _KINDS.get((job.type or "").replace("_", "").casefold()))
        # Some names cannot be written in a filter, so titles are compared here.
        and same_name(job.title, name)
    ]


def _notes(job: TSC.JobItem) -> list[str]:
    """Return the server's notes: those of publishes are of another kind than those of updates."""
    # Older releases of the client do not read the other kind.
    others = [note.get("text") or note.get("value") for note in getattr(job, "status_notes", [])]
    return [note for note in (*job.notes, *others) if note]


def _outcome(job: TSC.JobItem) -> Outcome | None:
    # Some servers report a finish code before the job has ended.
    if job.completed_at is None:
        return None
    # A code that is not known here must not pass for success.
    return _FINISHED.get(job.finish_code, Outcome.FAILED)


# Projects by path or LUID; their names are unique only within one parent.


def find_project(server: TSC.Server, project: Project) -> str | None:
    """Return the id of a project; None if there is none, or none that this user may see."""
    with suppress(RefusedError):
        return project_id(server, project, create=False)
    return None


def project_id(server: TSC.Server, project: Project, *, create: bool) -> str:
    """Return the id of a project, after creating the missing part of its path if allowed.

    Raises:
        RefusedError: no project has this LUID, or one on its path is missing and `create` is
            false. The message lists the existing ones.
    """
    if isinstance(project, ProjectLuid):
        if any(item.id == project.luid for item in every(server.projects)):
            return project.luid
        raise RefusedError(
            f"There is no project {project.luid} on the site, or this user may not see it. Correct "
            "the LUID in `project:`, or name the project by its path."
        )
    parent: str | None = None
    names = project if isinstance(project, tuple) else [name.strip() for name in project.split("/")]
    for depth, name in enumerate(names):
        item = _child(server, name, parent)
        if item is None and not create:
            where = f'in "{"/".join(names[:depth])}"' if depth else "on the site"
            raise RefusedError(
                f'Project "{project_path(project)}": there is no project "{name}" {where}, or this '
                "user may not see it. Create it, correct `project:`, or set create_project: true."
            )
        if item is None:
            item = server.projects.create(TSC.ProjectItem(name, parent_id=parent))
        parent = item.id
    return str(parent)


def _child(server: TSC.Server, name: str, parent: str | None) -> TSC.ProjectItem | None:
    for project in named(server.projects, name):
        if same_name(project.name, name) and (project.parent_id or None) == parent:
            return project
    return None


# Data updates: an action batch, and the upload with the tables that its actions name.


_RECEIVED_BEFORE = "409093"
_MEGABYTE = 10**6
# Tableau does not document what a megabyte is here, nor whether the limit itself is allowed.
_MARGIN = 0.95
# REST API versions: no updates before 2021.3 (3.13), a larger limit from 2022.1 (3.15).
_FIRST_WITH_UPDATES, _FIRST_WITH_LARGE_ONES = "3.13", "3.15"


def payload_limit(server: TSC.Server) -> int:
    """Return the largest payload of an update in bytes; 0 if the server supports no updates."""
    if not server.check_at_least_version(_FIRST_WITH_UPDATES):
        return 0
    megabytes = 100 if server.check_at_least_version(_FIRST_WITH_LARGE_ONES) else 10
    return int(megabytes * _MEGABYTE * _MARGIN)


def send_update(
    server: TSC.Server,
    luid: str,
    *,
    batch: str,
    upload: str | None,
    request_id: str,
    connection: str | None,
) -> str | None:
    """Send a batch of actions; return the id of its job, or None if the server does not name it."""
    server.assert_at_least_version(_FIRST_WITH_UPDATES, "Updating data")
    path = f"{luid}/connections/{_known(server, luid, connection)}" if connection else luid
    # TSC's own call would also upload the payload, which has already been done.
    try:
        answer = server.datasources.patch_request(
            f"{server.datasources.baseurl}/{path}/data",
            batch.encode(),
            "application/json",
            parameters={
                "headers": {"requestid": request_id},
                "params": {"uploadSessionId": upload} if upload else {},
            },
        )
    except TSC.ServerResponseError as error:
        if error.code == _RECEIVED_BEFORE:
            return None
        raise
    jobs = TSC.JobItem.from_response(answer.content, server.namespace)
    return jobs[0].id if jobs else None


def _known(server: TSC.Server, luid: str, connection: str) -> str:
    datasource = server.datasources.get_by_id(luid)
    server.datasources.populate_connections(datasource)
    known = [str(item.id) for item in datasource.connections]
    if connection in known:
        return connection
    raise RefusedError(
        f'Data source "{datasource.name}" has no connection {connection}. It has: '
        f"{', '.join(known)}."
    )


# Upload a file in blocks.


_VARIABLE = "TSC_CHUNK_SIZE_MB"
# The client's megabyte, in which it measures blocks. All other MB are 10^6 bytes.
_CLIENT_MEGABYTE = 2**20
_MOST_BLOCKS = 1000
# A block is in memory several times while it is sent; TSC's own blocks have 50.
_USUAL = 16
# A request may have 64, which includes more than the block.
_LARGEST_BLOCK = 63


def blocks(file: Path, size: int) -> Iterator[bytes]:
    """Yield a file in blocks of `size` bytes; the last one may be smaller."""
    with file.open("rb") as opened:
        while block := opened.read(size):
            yield block


def block_size(size: int) -> int:
    """Return the block size in bytes for a file of this many bytes.

    Raises:
        RefusedError: the file needs larger blocks than are allowed, or than TSC_CHUNK_SIZE_MB
            sets.
    """
    needed = -(-size // (_MOST_BLOCKS * _CLIENT_MEGABYTE))
    if needed > _LARGEST_BLOCK:
        raise RefusedError(
            f"The file has {megabytes(size)}; Tableau takes {_MOST_BLOCKS} blocks of "
            f"{megabytes(_LARGEST_BLOCK * _CLIENT_MEGABYTE)} at most. Publish fewer rows or "
            "columns, by `retain` for instance."
        )
    chosen = _asked_for() or max(_USUAL, needed)
    if chosen < needed:
        raise RefusedError(
            f"{_VARIABLE} is {chosen}: the file would need more than the {_MOST_BLOCKS} blocks "
            f"that Tableau takes. Unset it, or set it to {needed} or more."
        )
    return chosen * _CLIENT_MEGABYTE


def send_block(server: TSC.Server, upload: str, block: bytes) -> None:
    """Append one block to an upload."""
    request, content_type = RequestFactory.Fileupload.chunk_req(block)
    server.fileuploads.append(upload, request, content_type)
    # The answer and its request refer to each other, which keeps the block in memory.
    gc.collect(1)


def _asked_for() -> int | None:
    value = os.environ.get(_VARIABLE)
    if not value:
        return None
    if not value.isdecimal() or int(value) < 1:
        raise RefusedError(
            f"{_VARIABLE} is {value!r}: set it to a whole number of MB, or unset it."
        )
    return int(value)
