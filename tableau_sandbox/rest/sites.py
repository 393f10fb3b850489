"""Return the server, its sites, users and groups; create groups."""

from datetime import timedelta
from xml.etree.ElementTree import Element

from tableau_sandbox.clock import stamp
from tableau_sandbox.errors import refusal
from tableau_sandbox.identity import new_luid
from tableau_sandbox.rest.answers import (
    Reply,
    element,
    group_element,
    site_element,
    user_element,
)
from tableau_sandbox.rest.lists import list_page, text_field
from tableau_sandbox.rest.requests import Call, name_attribute, parse_request
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts
from tableau_sandbox.store.records import Group, User

_USER_FIELDS = {
    "name": text_field(lambda user: user.name),
    "siteRole": text_field(lambda user: user.site_role),
}
_GROUP_FIELDS = {
    "name": text_field(lambda group: group.name),
    "domainName": text_field(lambda _: "local"),
}


def get_server_info(services: Services, call: Call) -> Reply:
    """Return the version of the server and of its REST API."""
    options = services.options
    product = element("productVersion", {"build": options.build}, text=options.product_version)
    version = element("restApiVersion", text=options.rest_version)
    return Reply(200, element("serverInfo", None, product, version))


def get_site(services: Services, call: Call) -> Reply:
    """Return the site of the session."""
    options = services.options
    limit = options.kept_revisions if options.revisions else None
    return Reply(200, site_element(call.site, revision_limit=limit))


def query_users(services: Services, call: Call) -> Reply:
    """List all users of a site. Only administrators may list users."""
    if not call.user.is_admin:
        raise refusal("403004", "Only administrators may list the users of a site.")
    users = services.database.all(User)
    return list_page(users, call.query, name="users", write=user_element, fields=_USER_FIELDS)


def get_user(services: Services, call: Call) -> Reply:
    """Return one user, to that user or to an administrator."""
    if call.path["user"] != call.user.luid and not call.user.is_admin:
        raise refusal("403004", "Only administrators may look up other users.")
    return Reply(200, user_element(services.known(User, call.path["user"], code="404002")))


def query_tokens(services: Services, call: Call) -> Reply:
    """List the personal access tokens of a user, with their expiry, as Tableau Cloud does."""
    if services.options.token_days is None:
        raise refusal("404003", "Unknown resource 'personal-access-tokens' specified in URI.")
    if call.path["user"] != call.user.luid:
        raise refusal("403004", "Only a user may list the user's tokens.")
    ends = stamp(services.clock() + timedelta(days=services.options.token_days))
    names = accounts.access_tokens(services.database, call.user.luid)
    found = [element("personalAccessToken", {"tokenName": e, "expiresAt": ends}) for e in names]
    return Reply(200, element("personalAccessTokens", None, *found))


def query_groups(services: Services, call: Call) -> Reply:
    """List the groups of a site."""
    groups = services.database.all(Group, site=call.site.luid)
    return list_page(groups, call.query, name="groups", write=group_element, fields=_GROUP_FIELDS)


def create_group(services: Services, call: Call) -> Reply:
    """Create a group without members."""
    group = Group(new_luid(), call.site.luid, name_attribute(_by_admin(call, "group")))
    if not services.database.add("user_group", **vars(group)):
        raise refusal("409009", f"A group named '{group.name}' already exists on the site.")
    return Reply(201, group_element(group))


def add_to_group(services: Services, call: Call) -> Reply:
    """Make a user a member of a group."""
    user = services.known(User, _by_admin(call, "user").get("id", ""), code="404002")
    group = services.known(Group, call.path["group"], site=call.site.luid, code="404012")
    if not services.database.add("group_member", user_group=group.luid, user=user.luid):
        raise refusal("409011", f"'{user.name}' is a member of '{group.name}' already.")
    return Reply(200, user_element(user))


def _by_admin(call: Call, child: str) -> Element:
    if not call.user.is_admin:
        raise refusal("403004", "Only administrators may change the groups of a site.")
    return parse_request(call.body, child)


_SITE_SCOPES = ("tableau:content:read", "tableau:sites:read")
ROUTES = (
    Route("GET", "serverInfo", get_server_info, signed_in=False),
    Route("GET", "sites/{site}", get_site, _SITE_SCOPES),
    Route("GET", "sites/{site}/users", query_users, ("tableau:users:read",)),
    Route("GET", "sites/{site}/users/{user}", get_user, ("tableau:users:read",)),
    Route("GET", "sites/{site}/users/{user}/personal-access-tokens", query_tokens),
    Route("GET", "sites/{site}/groups", query_groups, ("tableau:groups:read",)),
    Route("POST", "sites/{site}/groups", create_group, ("tableau:groups:create",)),
    Route("POST", "sites/{site}/groups/{group}/users", add_to_group, ("tableau:groups:update",)),
)
