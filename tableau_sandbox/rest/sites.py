"""The server, its sites, users and groups."""

from starlette.responses import Response

from tableau_sandbox.errors import malformed, not_found, refusal
from tableau_sandbox.identity import new_luid
from tableau_sandbox.rest.answers import Element, Reply, site_element, user_element
from tableau_sandbox.rest.lists import list_page, text_field
from tableau_sandbox.rest.requests import Call, name_attribute, parse_request
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts
from tableau_sandbox.store.records import Group, Site, User

_SITE_FIELDS = {
    "name": text_field(lambda site: site.name),
    "contentUrl": text_field(lambda site: site.content_url),
}
_USER_FIELDS = {
    "name": text_field(lambda user: user.name),
    "siteRole": text_field(lambda user: user.site_role),
}
_SELECTABLE = (
    *("id", "name", "fullName", "siteRole"),
    # Known to servers, and requested by clients; the sandbox has no values for them.
    *("email", "authSetting", "lastLogin", "externalAuthUserId"),
)
_KEYS = {
    "id": lambda site: site.luid,
    "name": lambda site: site.name,
    "contentUrl": lambda site: site.content_url,
}


def query_sites(services: Services, call: Call) -> Reply:
    """List all sites."""
    sites: list[Site] = accounts.sites(services.database)
    return Reply(
        200,
        list_page(
            sites,
            call.query,
            fields=_SITE_FIELDS,
            name="sites",
            write=lambda site: _written(services, site),
        ),
    )


def get_site(services: Services, call: Call) -> Reply:
    """Return one site, by its LUID or by the property that the parameter `key` names."""
    read = _KEYS.get(call.query.get("key", "id"), _KEYS["id"])
    wanted = call.path["any_site"]
    for site in accounts.sites(services.database):
        if read(site) == wanted:
            if site != call.site:
                raise refusal("403004", "The session belongs to another site.")
            return Reply(200, (_written(services, site),))
    raise not_found("Site", wanted, code="404000")


def _written(services: Services, site: Site) -> Element:
    options = services.options
    return site_element(site, revision_limit=options.kept_revisions if options.revisions else None)


def query_users(services: Services, call: Call) -> Reply:
    """List all users of a site, for administrators."""
    if not call.user.is_admin:
        raise refusal("403004", "Only administrators may list the users of a site.")
    users: list[User] = accounts.users(services.database)
    return Reply(
        200,
        list_page(
            users,
            call.query,
            fields=_USER_FIELDS,
            name="users",
            write=user_element,
            selectable=_SELECTABLE,
        ),
    )


def get_user(services: Services, call: Call) -> Reply:
    """Return one user, to the user and to administrators."""
    if call.path["user"] != call.user.luid and not call.user.is_admin:
        raise refusal("403004", "Only administrators may look up other users.")
    user = accounts.user(services.database, call.path["user"])
    if user is None:
        raise not_found("User", call.path["user"], code="404002")
    return Reply(200, (user_element(user),))


def get_server_info(services: Services, call: Call) -> Reply:
    """Return the version of the server and of its REST API."""
    options = services.options
    product = Element("productVersion", {"build": options.build}, text=options.product_version)
    version = Element("restApiVersion", text=options.rest_version)
    return Reply(200, (Element("serverInfo", children=(product, version)),))


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
            write=_group_element,
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
    return Reply(201, (_group_element(group),))


def delete_group(services: Services, call: Call) -> Response:
    """Delete a group, and the permission rules about it."""
    with services.database.transaction():
        accounts.delete_group(services.database, _changeable(services, call))
    return Response(status_code=204)


def query_users_of_group(services: Services, call: Call) -> Reply:
    """List the users of a group."""
    users = accounts.users_of_group(services.database, _found_group(services, call))
    return Reply(200, list_page(users, call.query, fields={}, name="users", write=user_element))


def add_user(services: Services, call: Call) -> Reply:
    """Add a user to a group."""
    luid = parse_request(call.body, "user").get("id", "")
    with services.database.transaction():
        group, user = _changeable(services, call), _found_user(services, luid)
        if not accounts.add_to_group(services.database, group, user):
            raise refusal("409011", f"The user '{user.name}' is in '{group.name}' already.")
    return Reply(200, (user_element(user),))


def remove_user(services: Services, call: Call) -> Response:
    """Remove a user from a group."""
    with services.database.transaction():
        group, user = _changeable(services, call), _found_user(services, call.path["user"])
        if not accounts.remove_from_group(services.database, group, user):
            raise not_found("User", user.name, code="404002")
    return Response(status_code=204)


def _found_group(services: Services, call: Call) -> Group:
    _check_admin(call)
    group = accounts.group(services.database, call.site.luid, call.path["group"])
    if group is None:
        raise not_found("Group", call.path["group"], code="404012")
    return group


def _changeable(services: Services, call: Call) -> Group:
    group = _found_group(services, call)
    if group.name == accounts.ALL_USERS:
        raise refusal("403004", f"The group '{group.name}' always has all users.")
    return group


def _found_user(services: Services, luid: str) -> User:
    user = accounts.user(services.database, luid)
    if user is None:
        raise not_found("User", luid, code="404002")
    return user


def _check_admin(call: Call) -> None:
    if not call.user.is_admin:
        raise refusal("403004", "Only administrators may look into groups and change them.")


def _group_element(group: Group) -> Element:
    domain = Element("domain", {"name": "local"})
    return Element("group", {"id": group.luid, "name": group.name}, (domain,))


_GROUPS = "sites/{site}/groups"
_GROUP = f"{_GROUPS}/{{group}}"


ROUTES = (
    Route("GET", "sites", query_sites, scopes=("tableau:content:read", "tableau:sites:read")),
    Route(
        "GET", "sites/{any_site}", get_site, scopes=("tableau:content:read", "tableau:sites:read")
    ),
    Route("GET", "sites/{site}/users", query_users, scopes=("tableau:users:read",)),
    Route("GET", "sites/{site}/users/{user}", get_user, scopes=("tableau:users:read",)),
    Route("GET", "serverInfo", get_server_info, signed_in=False),
    Route("GET", _GROUPS, query_groups, scopes=("tableau:groups:read",)),
    Route("POST", _GROUPS, create_group, scopes=("tableau:groups:create",)),
    Route("DELETE", _GROUP, delete_group, scopes=("tableau:groups:delete",)),
    Route("GET", f"{_GROUP}/users", query_users_of_group, scopes=("tableau:groups:read",)),
    Route("POST", f"{_GROUP}/users", add_user, scopes=("tableau:groups:update",)),
    Route("DELETE", f"{_GROUP}/users/{{user}}", remove_user, scopes=("tableau:groups:update",)),
)
