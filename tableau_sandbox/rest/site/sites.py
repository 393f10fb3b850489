"""Sites and their users."""

from tableau_sandbox.errors import not_found, refusal
from tableau_sandbox.rest.wire.elements import Element
from tableau_sandbox.rest.wire.lists import list_page, text_field
from tableau_sandbox.rest.wire.records import site_element, user_element
from tableau_sandbox.rest.wire.requests import Call
from tableau_sandbox.rest.wire.router import Reply, Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts
from tableau_sandbox.store.records import Site, User

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


ROUTES = (
    Route("GET", "sites", query_sites, scopes=("tableau:content:read", "tableau:sites:read")),
    Route(
        "GET", "sites/{any_site}", get_site, scopes=("tableau:content:read", "tableau:sites:read")
    ),
    Route("GET", "sites/{site}/users", query_users, scopes=("tableau:users:read",)),
    Route("GET", "sites/{site}/users/{user}", get_user, scopes=("tableau:users:read",)),
)
