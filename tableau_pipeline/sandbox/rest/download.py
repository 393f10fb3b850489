"""The content of a data source, as a package or without its data."""

from starlette.responses import Response, StreamingResponse

from tableau_pipeline.sandbox.content.package import file_name, pack
from tableau_pipeline.sandbox.rest.datasources import find_datasource
from tableau_pipeline.sandbox.rest.requests import Call
from tableau_pipeline.sandbox.rest.router import Route
from tableau_pipeline.sandbox.services import Services
from tableau_pipeline.sandbox.store.records import Datasource, Revision

_BINARY = "application/octet-stream"


def download_datasource(services: Services, call: Call) -> Response:
    """A `.tdsx`, or a `.tds` if `includeExtract` is false."""
    include_extract = call.flag("includeExtract", default=True)
    # Under the lock, the file that the row names is still there to be opened.
    with services.database.lock:
        datasource = find_datasource(services, call)
        return content_response(
            services, datasource, name=datasource.name, include_extract=include_extract
        )


def content_response(
    services: Services, content: Datasource | Revision, *, name: str, include_extract: bool
) -> Response:
    """The content as a package, or only its model; the caller holds the lock of the database."""
    if not include_extract:
        headers = _headers(f"{file_name(name)}.tds")
        return Response(content.tds, headers=headers, media_type=_BINARY)
    package = pack(
        (services.files.content / content.hyper_file).open("rb"),
        hyper_member=content.packaged_path,
        tds=content.tds,
        tds_member=f"{file_name(name)}.tds",
    )
    headers = _headers(f"{file_name(name)}.tdsx")
    return StreamingResponse(package, headers=headers, media_type=_BINARY)


def _headers(filename: str) -> dict[str, str]:
    # Header values are written as Latin-1; this puts UTF-8 on the wire.
    on_the_wire = filename.encode().decode("latin-1")
    return {"Content-Disposition": f'name="tableau_datasource"; filename="{on_the_wire}"'}


ROUTES = (Route("GET", "sites/{site}/datasources/{datasource}/content", download_datasource),)
