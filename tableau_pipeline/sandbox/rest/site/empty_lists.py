"""Lists that clients request and that are always empty in a sandbox."""

from tableau_pipeline.sandbox.rest.wire.elements import Element
from tableau_pipeline.sandbox.rest.wire.lists import Field, field, list_page
from tableau_pipeline.sandbox.rest.wire.requests import Call
from tableau_pipeline.sandbox.rest.wire.router import Reply, Route
from tableau_pipeline.sandbox.services import Services

_FIELDS: dict[str, Field[None]] = dict.fromkeys(
    ("name", "contentUrl", "projectName", "ownerName", "tags", "createdAt", "updatedAt"),
    field(lambda _: None),
)


def _empty_list(pattern: str, name: str, *scopes: str) -> Route:
    def query(services: Services, call: Call) -> Reply:
        """Return an empty page."""
        return Reply(
            200,
            list_page([], call.query, fields=_FIELDS, name=name, write=lambda _: Element(name)),
        )

    return Route("GET", pattern, query, scopes=scopes)


ROUTES = (
    _empty_list("sites/{site}/workbooks", "workbooks", "tableau:content:read"),
    _empty_list("sites/{site}/views", "views", "tableau:content:read"),
    _empty_list("sites/{site}/flows", "flows", "tableau:flows:read"),
    _empty_list("schedules", "schedules"),
    _empty_list("sites/{site}/schedules", "schedules"),
    _empty_list("sites/{site}/tasks/extractRefreshes", "tasks", "tableau:tasks:read"),
)
