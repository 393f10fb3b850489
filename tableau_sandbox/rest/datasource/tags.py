import re

from starlette.responses import Response

from tableau_sandbox.access.capabilities import WRITE
from tableau_sandbox.errors import not_found, refusal
from tableau_sandbox.rest.datasource.datasources import find_datasource
from tableau_sandbox.rest.wire.records import tags_element
from tableau_sandbox.rest.wire.requests import Call, parse_request
from tableau_sandbox.rest.wire.router import Reply, Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import datasources
from tableau_sandbox.store.records import Datasource

_LONGEST = 200


def add_tags(services: Services, call: Call) -> Reply:
    """Add tags to a data source; its other tags stay."""
    tags = parse_request(call.body, "tags").findall("tag")
    labels = [label for tag in tags for label in _labels(tag.get("label", ""))]
    # An empty list adds nothing, and is no error.
    if (tags and not labels) or any(len(label) > _LONGEST for label in labels):
        raise refusal("400075", f"A tag must have 1 to {_LONGEST} characters.")
    with services.database.transaction():
        datasource = find_datasource(services, call, to=WRITE)
        for label in labels:
            datasources.add_tag(services.database, datasource.luid, label)
        found = find_datasource(services, call)
        if found.tags != datasource.tags:
            _move_stamp(services, datasource)
    return Reply(200, (tags_element(found.tags),))


def delete_tag(services: Services, call: Call) -> Response:
    """Remove one tag."""
    with services.database.transaction():
        datasource = find_datasource(services, call, to=WRITE)
        label = call.path["label"]
        if not datasources.remove_tag(services.database, datasource.luid, label):
            raise not_found("Tag", label, code="404007")
        _move_stamp(services, datasource)
    return Response(status_code=204)


def _move_stamp(services: Services, datasource: Datasource) -> None:
    if services.options.tags_move_stamp:
        updated_at = services.stamp_of_change(datasource.updated_at)
        datasources.set_updated_at(services.database, datasource.luid, updated_at)


def _labels(text: str) -> list[str]:
    """Split an attribute into labels: one in double quotes, others at spaces and commas."""
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        return [text[1:-1]] if text[1:-1].strip() else []
    return [label for label in re.split(r"[\s,]+", text) if label]


ROUTES = (
    Route(
        "PUT",
        "sites/{site}/datasources/{datasource}/tags",
        add_tags,
        scopes=("tableau:datasource_tags:update",),
    ),
    Route(
        "DELETE",
        "sites/{site}/datasources/{datasource}/tags/{label}",
        delete_tag,
        scopes=("tableau:datasource_tags:delete",),
    ),
)
