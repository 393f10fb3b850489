"""Find, publish, move and read the data sources on a server."""

from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import tableauserverclient as TSC
from tableauserverclient.server import RequestFactory

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.server import Metadata, RemoteDatasource
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.lookup import every, named, same_name
from tableau_pipeline.publishing.session.wire import downloads_up_to
from tableau_pipeline.publishing.tds import LARGEST, read_metadata

_MODES = {
    PublishMode.CREATE: TSC.Server.PublishMode.CreateNew,
    PublishMode.REPLACE: TSC.Server.PublishMode.Replace,
    PublishMode.OVERWRITE: TSC.Server.PublishMode.Overwrite,
}
# Bytes of a file whose size the server does not tell.
_LARGEST = 10**10
_NOT_FOUND = {"404000", "404004", "404011"}


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
        limit = 2 * (size + 1) * 2**20 if size is not None else _LARGEST
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
        if error.code in _NOT_FOUND:
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
