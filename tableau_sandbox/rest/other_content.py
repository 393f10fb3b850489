"""Answer the Metadata API, and requests for workbooks; a sandbox has no workbooks."""

import re
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from starlette.responses import JSONResponse, Response

from tableau_sandbox import access
from tableau_sandbox.errors import malformed
from tableau_sandbox.rest.answers import Reply, element
from tableau_sandbox.rest.lists import Field, list_page, text_field
from tableau_sandbox.rest.requests import Call
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store.records import Datasource
from tableau_sandbox.strict_json import JsonError, read_json

_FIELDS: dict[str, Field[str]] = dict.fromkeys(
    ("name", "contentUrl", "projectName", "ownerName", "tags", "createdAt", "updatedAt"),
    text_field(lambda _: None),
)
_WORKBOOKS = re.compile(r"[^{]*\{\s*workbooks\b")
_DATASOURCES = re.compile(
    r"[^{]*\{\s*publishedDatasources\s*\(\s*filter:\s*\{\s*luidWithin:\s*\$(\w+)\s*\}\s*\)"
)


def query_workbooks(services: Services, call: Call) -> Reply:
    """Return an empty page of workbooks."""
    nothing: list[str] = []
    return list_page(nothing, call.query, name="workbooks", write=element, fields=_FIELDS)


def query_metadata(services: Services, call: Call) -> Response:
    """Return no workbooks, or data sources by LUID; refuse other queries in the form of GraphQL."""
    try:
        request = read_json(call.body)
    except JsonError as error:
        raise malformed(f"The request is not JSON: {error}.") from error
    query = request.get("query") if isinstance(request, dict) else None
    if not isinstance(query, str):
        raise malformed("The request has no query.")
    if _WORKBOOKS.match(query):
        return JSONResponse({"data": {"workbooks": []}})
    if match := _DATASOURCES.match(query):
        variables = request.get("variables") or {}
        found = _datasources(services, call, variables.get(match[1]) or ())
        return JSONResponse({"data": {"publishedDatasources": found}})
    problem = "The sandbox answers about workbooks, and about published data sources by LUID."
    return JSONResponse({"errors": [{"message": problem}]})


def _datasources(services: Services, call: Call, luids: Any) -> list[dict[str, str]]:
    """Return the data sources with these LUIDs. The Metadata API also has ids of its own."""
    decision = access.access_to(services.database, call.site.luid)
    return [
        {"id": str(uuid5(NAMESPACE_OID, each.luid)), "luid": each.luid, "name": each.name}
        for each in services.database.all(Datasource, site=call.site.luid)
        if each.luid in luids and decision.may(call.user, access.READ, each)
    ]


_SCOPES = ("tableau:content:read",)
ROUTES = (
    Route("GET", "sites/{site}/workbooks", query_workbooks, _SCOPES),
    Route("POST", "metadata/graphql", query_metadata, _SCOPES, versioned=False),
)
