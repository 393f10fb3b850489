"""Good requests about groups and permissions, in XML and in JSON."""

from tableau_sandbox.store.accounts import all_users_luid
from tableau_sandbox_tests.requests.fuzz_messages import Message, World


def rights(world: World) -> list[Message]:
    """Requests of every method for groups and permissions."""
    site, user = f"sites/{world.server.site_id}", world.server.user_id
    everyone = all_users_luid(str(world.server.site_id))
    rule = (
        f'<permissions><granteeCapabilities><group id="{everyone}"/><capabilities>'
        '<capability name="Read" mode="Allow"/></capabilities></granteeCapabilities></permissions>'
    )
    capabilities = {"capability": [{"name": "Read", "mode": "Deny"}]}
    grantee = {"user": {"id": user}, "capabilities": capabilities}
    group = f"{site}/groups/{everyone}"
    asked = [
        world.message("GET", f"{site}/groups?filter=name:eq:All+Users"),
        world.xml("POST", f"{site}/groups", '<group name="Readers"/>'),
        world.json("POST", f"{site}/groups", {"group": {"name": "Writers"}}),
        world.message("GET", f"{group}/users?pageSize=2"),
        world.xml("POST", f"{group}/users", f'<user id="{user}"/>'),
        world.message("DELETE", f"{group}/users/{user}"),
        world.message("DELETE", group),
    ]
    for path in (
        f"{site}/datasources/{world.datasource}/permissions",
        f"{site}/projects/{world.project}/permissions",
        f"{site}/projects/{world.project}/default-permissions/workbooks",
    ):
        asked += [
            world.message("GET", path),
            world.xml("PUT", path, rule),
            world.json("PUT", path, {"permissions": {"granteeCapabilities": [grantee]}}),
            world.message("DELETE", f"{path}/users/{user}/Read/Deny"),
        ]
    return asked
