"""Data sources on a server: finding, publishing and reading them."""

import hashlib
from io import BytesIO
from pathlib import Path

import tableauserverclient as TSC
from tableauserverclient.config import config

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.query import named, same_name

_MODES = {
    PublishMode.CREATE: TSC.Server.PublishMode.CreateNew,
    PublishMode.REPLACE: TSC.Server.PublishMode.Replace,
    PublishMode.OVERWRITE: TSC.Server.PublishMode.Overwrite,
}
_NOT_FOUND = {"404000", "404004", "404011"}


def find_by_luid(server: TSC.Server, luid: str) -> RemoteDatasource | None:
    """The data source, or None if there is none; not to be allowed to read it is an error."""
    try:
        return _remote(server.datasources.get_by_id(luid))
    except TSC.ServerResponseError as error:
        if error.code in _NOT_FOUND:
            return None
        raise


def find_by_name(server: TSC.Server, name: str, *, project_id: str) -> RemoteDatasource | None:
    """The data source that has this name in a project, in any case of letters, or None."""
    for item in named(server.datasources, name):
        if same_name(item.name, name) and item.project_id == project_id:
            return _remote(item)
    return None


def publish(
    server: TSC.Server, file: Path, *, name: str, project_id: str, mode: PublishMode
) -> RemoteDatasource | str:
    """Send a whole file; files too large for one request go in blocks, and on as a job."""
    large = file.stat().st_size >= config.FILESIZE_LIMIT_MB * 2**20
    item = TSC.DatasourceItem(project_id, name=name)
    answer = server.datasources.publish(item, file, _MODES[mode], as_job=large)
    return str(answer.id) if isinstance(answer, TSC.JobItem) else _remote(answer)


def metadata_digest(server: TSC.Server, luid: str) -> str:
    """A digest of the data source's `.tds`, which holds what analysts edit."""
    tds = BytesIO()
    server.datasources.download(luid, tds, include_extract=False)
    return hashlib.sha256(tds.getvalue()).hexdigest()[:16]


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
