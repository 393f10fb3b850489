import re

from starlette.responses import Response

from tableau_sandbox.access.capabilities import DOWNLOAD, WRITE
from tableau_sandbox.errors import not_found, refusal
from tableau_sandbox.rest.datasource.datasources import find_datasource
from tableau_sandbox.rest.datasource.download import content_response
from tableau_sandbox.rest.wire.lists import list_page
from tableau_sandbox.rest.wire.records import revision_element
from tableau_sandbox.rest.wire.requests import Call
from tableau_sandbox.rest.wire.router import Reply, Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import datasources
from tableau_sandbox.store.records import Datasource, Revision


def query_revisions(services: Services, call: Call) -> Reply:
    """List the revisions of a data source, oldest first."""
    datasource = _own_datasource(services, call)
    found: list[Revision] = datasources.revisions(services.database, datasource.luid)
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
        number = _number(call)
        found = None
        if number < datasource.revision:
            found = datasources.revision(services.database, datasource.luid, number)
        if found is None:
            raise not_found("Earlier revision", call.path["revision"], code="404024")
        return content_response(services, datasource, found, include_extract=include_extract)


def delete_revision(services: Services, call: Call) -> Response:
    """Delete an earlier revision."""
    with services.database.transaction():
        datasource = _own_datasource(services, call)
        number = _number(call)
        if number == datasource.revision:
            raise refusal("403055", f"The revision {number} is the current one.")
        if not datasources.delete_revision(services.database, datasource.luid, number):
            raise not_found("Revision", call.path["revision"], code="404024")
    services.sweep_content()
    return Response(status_code=204)


def _number(call: Call) -> int:
    number = call.path["revision"]
    return int(number) if re.fullmatch("[0-9]{1,9}", number) else 0


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
        since="2.3",
        scopes=("tableau:content:read",),
    ),
    Route(
        "GET",
        "sites/{site}/datasources/{datasource}/revisions/{revision}/content",
        download_revision,
        since="2.3",
        scopes=("tableau:datasources:download",),
    ),
    Route(
        "DELETE",
        "sites/{site}/datasources/{datasource}/revisions/{revision}",
        delete_revision,
        since="2.3",
        scopes=("tableau:datasources:delete",),
    ),
)
