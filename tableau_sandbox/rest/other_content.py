"""What clients ask about content that a sandbox does not have."""

import re

from starlette.responses import JSONResponse, Response

from tableau_sandbox.errors import malformed
from tableau_sandbox.rest.answers import Element, listing
from tableau_sandbox.rest.json_requests import parse_json
from tableau_sandbox.rest.lists import Field, list_page, text_field
from tableau_sandbox.rest.requests import Call
from tableau_sandbox.rest.router import OLDEST_VERSION, Reply, Route
from tableau_sandbox.services import Services

_FIELDS: dict[str, Field[None]] = dict.fromkeys(
    ("name", "contentUrl", "projectName", "ownerName", "tags", "createdAt", "updatedAt"),
    text_field(lambda _: None),
)


def _empty_list(pattern: str, name: str, *scopes: str, since: str = OLDEST_VERSION) -> Route:
    def query(services: Services, call: Call) -> Reply:
        """Return an empty page."""
        return Reply(
            200,
            list_page([], call.query, fields=_FIELDS, name=name, write=lambda _: Element(name)),
        )

    return Route("GET", pattern, query, since=since, scopes=scopes)


def query_tasks(services: Services, call: Call) -> Reply:
    """Return an empty list, which has no pages."""
    return Reply(200, (listing("tasks", ()),))


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
    _empty_list("sites/{site}/workbooks", "workbooks", "tableau:content:read"),
    _empty_list("sites/{site}/views", "views", "tableau:content:read", since="2.2"),
    _empty_list("sites/{site}/flows", "flows", "tableau:flows:read", since="3.3"),
    _empty_list("schedules", "schedules", since="2.3"),
    _empty_list("sites/{site}/schedules", "schedules", since="2.3"),
    Route(
        "GET",
        "sites/{site}/tasks/extractRefreshes",
        query_tasks,
        since="2.6",
        scopes=("tableau:tasks:read",),
    ),
    Route(
        "POST",
        "metadata/graphql",
        query_metadata,
        scopes=("tableau:content:read",),
        versioned=False,
    ),
)
