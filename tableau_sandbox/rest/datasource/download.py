"""Download the content of a data source, with or without its data."""

import io
from pathlib import Path
from typing import BinaryIO

from starlette.responses import Response, StreamingResponse

from tableau_sandbox.access.capabilities import DOWNLOAD
from tableau_sandbox.content.package import any_packing, file_name, pack
from tableau_sandbox.content.tds import mark_tds
from tableau_sandbox.quirks import DownloadWithoutExtract
from tableau_sandbox.rest.datasource.datasources import find_datasource
from tableau_sandbox.rest.wire.requests import Call
from tableau_sandbox.rest.wire.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store.records import Datasource, Revision

_BINARY = "application/octet-stream"


def download_datasource(services: Services, call: Call) -> Response:
    """Return a `.tdsx`, or usually a `.tds` if `includeExtract` is false."""
    include_extract = call.flag("includeExtract", default=True)
    # The lock keeps the file of the row from being removed before it is opened.
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
    options, content = services.options, earlier or datasource
    name, tds = file_name(datasource.name), content.tds
    if options.tds_varies:
        tds = mark_tds(
            tds,
            content_url=datasource.content_url,
            revision=earlier.number if earlier else datasource.revision,
            mark=_mark(content),
        )
    wants_model = (
        not include_extract and options.download_without_extract is DownloadWithoutExtract.TDS
    )
    # What was published without data has no package.
    if wants_model or not content.hyper_file:
        return Response(tds, headers=_headers(f"{name}.tds"), media_type=_BINARY)
    members: list[tuple[str, BinaryIO]] = [(f"{name}.tds", io.BytesIO(tds))]
    if include_extract:
        file = services.files.content / content.hyper_file
        members.append((content.packaged_path, file.open("rb")))
    package = pack(members, any_packing() if options.zips_vary else None)
    headers = _headers(f"{name}.tdsx")
    return StreamingResponse(package, headers=headers, media_type=_BINARY)


def _mark(content: Datasource | Revision) -> int:
    # Each publish and each data update creates a file whose name consists of random digits.
    return int(Path(content.hyper_file).stem[:8] or "0", 16)


def _headers(filename: str) -> dict[str, str]:
    # Headers are encoded as Latin-1; this sends the bytes of UTF-8.
    on_the_wire = filename.encode().decode("latin-1")
    # Servers write no type here either, and clients take the suffix of the file from this header.
    return {"Content-Disposition": f'name="tableau_datasource"; filename="{on_the_wire}"'}


ROUTES = (
    Route(
        "GET",
        "sites/{site}/datasources/{datasource}/content",
        download_datasource,
        scopes=("tableau:datasources:download",),
    ),
)
