"""Lists that clients request and that are always empty in a sandbox."""

from tableau_sandbox.rest.wire.elements import Element, listing
from tableau_sandbox.rest.wire.lists import Field, list_page, text_field
from tableau_sandbox.rest.wire.requests import Call
from tableau_sandbox.rest.wire.router import OLDEST_VERSION, Reply, Route
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
)
