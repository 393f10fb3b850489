"""What clients ask about workbooks, of which a sandbox has none."""

import re

from starlette.responses import JSONResponse, Response

from tableau_sandbox.errors import malformed
from tableau_sandbox.rest.answers import Reply, element
from tableau_sandbox.rest.lists import Field, list_page, text_field
from tableau_sandbox.rest.requests import Call
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.strict_json import JsonError, read_json

_FIELDS: dict[str, Field[str]] = dict.fromkeys(
    ("name", "contentUrl", "projectName", "ownerName", "tags", "createdAt", "updatedAt"),
    text_field(lambda _: None),
)
_WORKBOOKS = re.compile(r"[^{]*\{\s*workbooks\b")


def query_workbooks(services: Services, call: Call) -> Reply:
    """Return an empty page."""
    nothing: list[str] = []
    return list_page(nothing, call.query, name="workbooks", write=element, fields=_FIELDS)


def query_metadata(services: Services, call: Call) -> Response:
    """Return an empty answer to a query of workbooks; refuse others in the form of GraphQL."""
    try:
        request = read_json(call.body)
    except JsonError as error:
        raise malformed(f"The request is not JSON: {error}.") from error
    query = request.get("query") if isinstance(request, dict) else None
    if not isinstance(query, str):
        raise malformed("The request has no query.")
    if not _WORKBOOKS.match(query):
        return JSONResponse({"errors": [{"message": "The sandbox answers about workbooks only."}]})
    return JSONResponse({"data": {"workbooks": []}})


_SCOPES = ("tableau:content:read",)
ROUTES = (
    Route("GET", "sites/{site}/workbooks", query_workbooks, _SCOPES),
    Route("POST", "metadata/graphql", query_metadata, _SCOPES, versioned=False),
)
