"""Groups of users, which permission rules can be about."""

from starlette.responses import Response

from tableau_sandbox.errors import malformed, not_found, refusal
from tableau_sandbox.identity import new_luid
from tableau_sandbox.rest.wire.elements import Element
from tableau_sandbox.rest.wire.lists import list_page, text_field
from tableau_sandbox.rest.wire.records import user_element
from tableau_sandbox.rest.wire.requests import Call, name_attribute, parse_request
from tableau_sandbox.rest.wire.router import Reply, Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts
from tableau_sandbox.store.records import Group, User


def query_groups(services: Services, call: Call) -> Reply:
    """List the groups of a site."""
    fields = {
        "name": text_field(lambda group: group.name),
        "domainName": text_field(lambda _: "local"),
    }
    found = accounts.groups(services.database, call.site.luid)
    return Reply(
        200,
        list_page(
            found,
            call.query,
            fields=fields,
            name="groups",
            write=_element,
            selectable=("id", "name", "domain", "domain.name"),
        ),
    )


def create_group(services: Services, call: Call) -> Reply:
    """Create a group without users."""
    _check_admin(call)
    request = parse_request(call.body, "group")
    if request.find("import") is not None:
        raise malformed("There is no directory to import groups from.")
    group = Group(new_luid(), call.site.luid, name_attribute(request))
    with services.database.transaction():
        taken = [each.name.lower() for each in accounts.groups(services.database, group.site)]
        if group.name.lower() in taken:
            raise refusal("409009", f"A group already exists with the name '{group.name}'.")
        accounts.add_group(services.database, group)
    return Reply(201, (_element(group),))


def delete_group(services: Services, call: Call) -> Response:
    """Delete a group, and the permission rules about it."""
    with services.database.transaction():
        accounts.delete_group(services.database, _changeable(services, call))
    return Response(status_code=204)


def query_users_of_group(services: Services, call: Call) -> Reply:
    """List the users of a group."""
    users = accounts.users_of_group(services.database, _found(services, call))
    return Reply(200, list_page(users, call.query, fields={}, name="users", write=user_element))


def add_user(services: Services, call: Call) -> Reply:
    """Add a user to a group."""
    luid = parse_request(call.body, "user").get("id", "")
    with services.database.transaction():
        group, user = _changeable(services, call), _user(services, luid)
        if not accounts.add_to_group(services.database, group, user):
            raise refusal("409011", f"The user '{user.name}' is in '{group.name}' already.")
    return Reply(200, (user_element(user),))


def remove_user(services: Services, call: Call) -> Response:
    """Remove a user from a group."""
    with services.database.transaction():
        group, user = _changeable(services, call), _user(services, call.path["user"])
        if not accounts.remove_from_group(services.database, group, user):
            raise not_found("User", user.name, code="404002")
    return Response(status_code=204)


def _found(services: Services, call: Call) -> Group:
    _check_admin(call)
    group = accounts.group(services.database, call.site.luid, call.path["group"])
    if group is None:
        raise not_found("Group", call.path["group"], code="404012")
    return group


def _changeable(services: Services, call: Call) -> Group:
    group = _found(services, call)
    if group.name == accounts.ALL_USERS:
        raise refusal("403004", f"The group '{group.name}' always has all users.")
    return group


def _user(services: Services, luid: str) -> User:
    user = accounts.user(services.database, luid)
    if user is None:
        raise not_found("User", luid, code="404002")
    return user


def _check_admin(call: Call) -> None:
    if not call.user.is_admin:
        raise refusal("403004", "Only administrators may look into groups and change them.")


def _element(group: Group) -> Element:
    domain = Element("domain", {"name": "local"})
    return Element("group", {"id": group.luid, "name": group.name}, (domain,))


_GROUPS = "sites/{site}/groups"
_GROUP = f"{_GROUPS}/{{group}}"
ROUTES = (
    Route("GET", _GROUPS, query_groups, scopes=("tableau:groups:read",)),
    Route("POST", _GROUPS, create_group, scopes=("tableau:groups:create",)),
    Route("DELETE", _GROUP, delete_group, scopes=("tableau:groups:delete",)),
    Route("GET", f"{_GROUP}/users", query_users_of_group, scopes=("tableau:groups:read",)),
    Route("POST", f"{_GROUP}/users", add_user, scopes=("tableau:groups:update",)),
    Route("DELETE", f"{_GROUP}/users/{{user}}", remove_user, scopes=("tableau:groups:update",)),
)
