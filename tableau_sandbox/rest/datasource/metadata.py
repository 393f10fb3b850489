"""The metadata API, limited to the answer that there are no workbooks."""

import re

from starlette.responses import JSONResponse, Response

from tableau_sandbox.errors import malformed
from tableau_sandbox.rest.wire.json_requests import parse_json
from tableau_sandbox.rest.wire.requests import Call
from tableau_sandbox.rest.wire.router import Route
from tableau_sandbox.services import Services

_FIRST_FIELD = re.compile(r"[^{]*\{\s*(\w+)")


def query_metadata(services: Services, call: Call) -> Response:
    """Return an empty answer to a query of workbooks; refuse others in the form of GraphQL."""
    request = parse_json(call.body)
    query = request.get("query") if isinstance(request, dict) else None
    if not isinstance(query, str):
        raise malformed("The request has no query.")
    found = _FIRST_FIELD.match(query)
    if found is None or found.group(1) != "workbooks":
        return JSONResponse({"errors": [{"message": "The sandbox answers about workbooks only."}]})
    return JSONResponse({"data": {"workbooks": []}})


ROUTES = (
    Route(
        "POST",
        "metadata/graphql",
        query_metadata,
        scopes=("tableau:content:read",),
        versioned=False,
    ),
)
