import re

from starlette.responses import Response

from tableau_pipeline.sandbox.access.capabilities import DOWNLOAD, WRITE
from tableau_pipeline.sandbox.errors import not_found, refusal
from tableau_pipeline.sandbox.rest.datasource.datasources import find_datasource
from tableau_pipeline.sandbox.rest.datasource.download import content_response
from tableau_pipeline.sandbox.rest.wire.lists import list_page
from tableau_pipeline.sandbox.rest.wire.records import revision_element
from tableau_pipeline.sandbox.rest.wire.requests import Call
from tableau_pipeline.sandbox.rest.wire.router import Reply, Route
from tableau_pipeline.sandbox.services import Services
from tableau_pipeline.sandbox.store import revisions
from tableau_pipeline.sandbox.store.records import Datasource, Revision


def query_revisions(services: Services, call: Call) -> Reply:
    """List the revisions of a data source, oldest first."""
    datasource = _own_datasource(services, call)
    found: list[Revision] = revisions.revisions(services.database, datasource.luid)
    return Reply(
        200,
        list_page(
            found,
            call.query,
            fields={},
            name="revisions",
            write=lambda revision: revision_element(revision, current=datasource.revision),
        ),
    )


def download_revision(services: Services, call: Call) -> Response:
    """Download an earlier revision; the current one is downloaded as the data source."""
    include_extract = call.flag("includeExtract", default=True)
    with services.database.lock:
        datasource = _own_datasource(services, call)
        find_datasource(services, call, to=DOWNLOAD)
        number = call.path["revision"]
        found = None
        if re.fullmatch("[0-9]{1,9}", number) and int(number) < datasource.revision:
            found = revisions.revision(services.database, datasource.luid, int(number))
        if found is None:
            raise not_found("Earlier revision", number, code="404024")
        return content_response(services, datasource, found, include_extract=include_extract)


def _own_datasource(services: Services, call: Call) -> Datasource:
    # A history belongs to those who may add to it.
    datasource = find_datasource(services, call, to=WRITE)
    if not services.options.revisions:
        raise refusal("403053", "The site keeps no revisions of its content.")
    return datasource


ROUTES = (
    Route(
        "GET",
        "sites/{site}/datasources/{datasource}/revisions",
        query_revisions,
        scopes=("tableau:content:read",),
    ),
    Route(
        "GET",
        "sites/{site}/datasources/{datasource}/revisions/{revision}/content",
        download_revision,
        scopes=("tableau:datasources:download",),
    ),
)
