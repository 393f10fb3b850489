"""The one group of a site: all its users."""

from tableau_pipeline.sandbox.access.rules import ALL_USERS, all_users_luid
from tableau_pipeline.sandbox.errors import not_found, refusal
from tableau_pipeline.sandbox.rest.wire.elements import Element
from tableau_pipeline.sandbox.rest.wire.lists import list_page, text_field
from tableau_pipeline.sandbox.rest.wire.records import user_element
from tableau_pipeline.sandbox.rest.wire.requests import Call
from tableau_pipeline.sandbox.rest.wire.router import Reply, Route
from tableau_pipeline.sandbox.services import Services
from tableau_pipeline.sandbox.store import accounts

_SCOPES = ("tableau:groups:read",)


def query_groups(services: Services, call: Call) -> Reply:
    """List the group of all users, which rules can be about."""
    fields = {"name": text_field(lambda _: ALL_USERS), "domainName": text_field(lambda _: "local")}
    luids = [all_users_luid(call.site.luid)]
    return Reply(200, list_page(luids, call.query, fields=fields, name="groups", write=_group))


def query_users_of_group(services: Services, call: Call) -> Reply:
    """List the users of the group, for administrators."""
    if call.path["group"] != all_users_luid(call.site.luid):
        raise not_found("Group", call.path["group"], code="404012")
    if not call.user.is_admin:
        raise refusal("403004", "Only administrators may list the users of a group.")
    users = accounts.users(services.database)
    return Reply(200, list_page(users, call.query, fields={}, name="users", write=user_element))


def _group(luid: str) -> Element:
    domain = Element("domain", {"name": "local"})
    return Element("group", {"id": luid, "name": ALL_USERS}, (domain,))


ROUTES = (
    Route("GET", "sites/{site}/groups", query_groups, scopes=_SCOPES),
    Route("GET", "sites/{site}/groups/{group}/users", query_users_of_group, scopes=_SCOPES),
)
