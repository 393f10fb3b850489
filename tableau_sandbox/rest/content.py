"""Download the current or earlier content of a data source, with or without its data."""

import io
import re
from collections.abc import AsyncIterator, Iterator
from typing import BinaryIO

from starlette.responses import Response, StreamingResponse

from tableau_sandbox.access import DOWNLOAD, WRITE
from tableau_sandbox.content.package import file_name, pack
from tableau_sandbox.errors import not_found, refusal
from tableau_sandbox.rest.answers import Reply, revision_element
from tableau_sandbox.rest.datasources import find_datasource
from tableau_sandbox.rest.lists import list_page
from tableau_sandbox.rest.requests import Call
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store.records import Datasource, Revision

_BINARY = "application/octet-stream"


def download_datasource(services: Services, call: Call) -> Response:
    """Return a `.tdsx`, or a `.tds` published alone; `includeExtract=false` omits the extract."""
    include_extract = call.flag("includeExtract", default=True)
    # The lock prevents the removal of the file between reading its name and opening it.
    with services.database.lock:
        datasource = find_datasource(services, call, to=DOWNLOAD)
        return content_response(services, datasource, include_extract=include_extract)


def content_response(
    services: Services,
    datasource: Datasource,
    earlier: Revision | None = None,
    *,
    include_extract: bool,
) -> Response:
    """Return the current or an earlier content of a data source, or only its model.

    The caller must hold the lock of the database.
    """
    content, name = earlier or datasource, file_name(datasource.name)
    # A model that was published without data has no package.
    if not content.hyper_file:
        return Response(content.tds, headers=_headers(f"{name}.tds"), media_type=_BINARY)
    model = f"{file_name(datasource.content_url)}.tds"
    members: list[tuple[str, BinaryIO]] = [(model, io.BytesIO(content.tds))]
    # The data of a published .hyper file are not an extract, so they may stay in the package.
    stays = services.options.download_without_extract == "tdsx-with-data"
    if include_extract or (stays and not datasource.has_extracts):
        file = services.files.content / content.hyper_file
        members.insert(0 if not include_extract else 1, (content.packaged_path, file.open("rb")))
    pieces, headers = _streamed(services, pack(members)), _headers(f"{name}.tdsx")
    return StreamingResponse(pieces, headers=headers, media_type=_BINARY)


async def _streamed(services: Services, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (piece := await services.in_thread(next, pieces, None)) is not None:
        yield piece


def _headers(filename: str) -> dict[str, str]:
    # The web framework encodes headers as Latin-1. With this string, it sends UTF-8.
    on_the_wire = filename.encode().decode("latin-1")
    # Like real servers, omit the disposition's type, such as `attachment`. Clients take the file's
    # suffix from this header.
    return {"Content-Disposition": f'name="tableau_datasource"; filename="{on_the_wire}"'}


def query_revisions(services: Services, call: Call) -> Reply:
    """List the revisions of a data source, oldest first."""
    datasource = _own_datasource(services, call)
    return list_page(
        services.database.all(Revision, datasource=datasource.luid),
        call.query,
        name="revisions",
        write=lambda revision: revision_element(revision, current=datasource.revision),
    )


def download_revision(services: Services, call: Call) -> Response:
    """Download an earlier revision; refuse the current one, which `download_datasource` returns."""
    include_extract = call.flag("includeExtract", default=True)
    with services.database.lock:
        datasource = _own_datasource(services, call)
        find_datasource(services, call, to=DOWNLOAD)
        number = call.path["revision"]
        found = None
        if re.fullmatch("[0-9]{1,9}", number) and int(number) < datasource.revision:
            key = {"datasource": datasource.luid, "number": int(number)}
            found = services.database.find(Revision, **key)
        if found is None:
            raise not_found("Earlier revision", number, code="404024")
        return content_response(services, datasource, found, include_extract=include_extract)


def _own_datasource(services: Services, call: Call) -> Datasource:
    # Only users who may add revisions may see them.
    datasource = find_datasource(services, call, to=WRITE)
    if not services.options.revisions:
        raise refusal("403053", "The site keeps no revisions of its content.")
    return datasource


_DATASOURCE = "sites/{site}/datasources/{datasource}"
_REVISION = f"{_DATASOURCE}/revisions/{{revision}}"
_SCOPES = ("tableau:datasources:download",)
ROUTES = (
    Route("GET", f"{_DATASOURCE}/content", download_datasource, _SCOPES),
    Route("GET", f"{_DATASOURCE}/revisions", query_revisions, ("tableau:content:read",)),
    Route("GET", f"{_REVISION}/content", download_revision, _SCOPES),
)
