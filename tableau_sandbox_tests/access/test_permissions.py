"""Permission rules, through the calls of Tableau's own client."""

from pathlib import Path
from typing import Any

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.access.test_roles import allow, everyone, refused, user
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.samples import (
    call,
    code_of,
    publish,
    rows_on_server,
    signed_in,
)


def shown(rules: list[tsc.PermissionsRule]) -> dict[tuple[str, str | None], dict[str, str]]:
    return {(rule.grantee.tag_name, rule.grantee.id): rule.capabilities for rule in rules}


def of_datasource(server: tsc.Server, item: Any) -> dict:
    server.datasources.populate_permissions(item)
    return shown(item.permissions)


def hide(server: tsc.Server, item: Any) -> None:
    server.datasources.populate_permissions(item)
    server.datasources.delete_permission(item, item.permissions)


def new_project(server: tsc.Server, name: str, **attributes: Any) -> Any:
    return server.projects.create(tsc.ProjectItem(name, **attributes))


def test_rules_of_a_datasource(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: what is allowed or denied to a user is shown and has no effect, or the reverse."""
    item, alice = publish(server, one_row), user(sandbox, ALICE)
    group, person = ("group", everyone(server).id), ("user", alice.user_id)
    assert of_datasource(server, item) == {group: {"Read": "Allow", "Connect": "Allow"}}
    herself = server.users.get_by_id(alice.user_id)
    allow(server, item, herself, {"ExportXml": "Allow", "VizqlDataApiAccess": "Allow"})
    granted = {"ExportXml": "Allow", "VizqlDataApiAccess": "Allow"}
    assert of_datasource(server, item)[person] == granted
    assert rows_on_server(alice, item.id) == [[1, "one"]]
    refused(lambda: alice.datasources.populate_permissions(item) or item.permissions, "403004")
    rule = tsc.PermissionsRule(herself, {"ExportXml": "Allow"})
    server.datasources.delete_permission(item, rule)
    refused(lambda: rows_on_server(alice, item.id), "403004")
    refused(lambda: server.datasources.delete_permission(item, rule), "404013")


def test_what_was_denied_stays_denied(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a second rule about the same capability replaces the first, as in no server."""
    item, alice = publish(server, one_row), user(sandbox, ALICE)
    herself = server.users.get_by_id(alice.user_id)
    allow(server, item, herself, {"Read": "Deny"})
    allow(server, item, herself, {"Read": "Allow"})
    refused(lambda: alice.datasources.get_by_id(item.id), "403004")
    assert of_datasource(server, item)["user", alice.user_id] == {"Read": "Deny"}


def test_lists_show_what_may_be_seen(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a lookup by name finds what the user of the pipeline cannot see in production."""
    seen, hidden = (publish(server, one_row, name=name) for name in ("Seen", "Hidden"))
    hide(server, hidden)
    alice = user(sandbox, ALICE)
    items, page = alice.datasources.get()
    assert ([each.id for each in items], page.total_available) == ([seen.id], 1)
    project = new_project(server, "Secret")
    server.projects.populate_permissions(project)
    server.projects.delete_permission(project, project.permissions)
    assert [each.name for each in alice.projects.get()[0]] == ["Default"]
    assert {each.name for each in server.projects.get()[0]} == {"Default", "Secret"}
    for action in ("", "/connections", "/content", "/revisions"):
        path = f"sites/{{site}}/datasources/{hidden.id}{action}"
        assert code_of(call(sandbox, "GET", path, server=alice)) == "403004"


def of_group(server: tsc.Server, *users: tsc.Server) -> tsc.GroupItem:
    """A new group with the users of some sessions."""
    group = server.groups.create(tsc.GroupItem("Readers"))
    for each in users:
        server.groups.add_user(group, str(each.user_id))
    return group


def members(server: tsc.Server, group: tsc.GroupItem) -> list[str | None]:
    server.groups.populate_users(group)
    return [each.name for each in group.users]


def test_rules_of_a_group(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: what a group may do holds for nobody, or also for those who have left it."""
    item, alice = publish(server, one_row), user(sandbox, ALICE)
    group = of_group(server, alice)
    assert members(server, group) == ["alice"]
    assert [each.name for each in server.groups.get()[0]] == ["All Users", "Readers"]
    allow(server, item, group, {"ExportXml": "Allow"})
    assert of_datasource(server, item)["group", group.id] == {"ExportXml": "Allow"}
    assert rows_on_server(alice, item.id) == [[1, "one"]]
    assert [each.id for each in alice.datasources.get()[0]] == [item.id]
    server.groups.remove_user(group, str(alice.user_id))
    assert members(server, group) == []
    refused(lambda: rows_on_server(alice, item.id), "403004")
    server.groups.add_user(group, str(alice.user_id))
    sandbox.restart()
    assert rows_on_server(alice, item.id) == [[1, "one"]]
    server.groups.delete(str(group.id))
    refused(lambda: rows_on_server(alice, item.id), "403004")
    assert ("group", group.id) not in of_datasource(server, item)


def test_groups_are_of_one_site(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a group of another site, or one that is gone, gives somebody a right."""
    item = publish(server, one_row)
    second = signed_in(sandbox, tsc.TableauAuth(sandbox.user, sandbox.password, "second"))
    group = of_group(second)
    refused(lambda: allow(server, item, group, {"Read": "Allow"}), "404012")
    refused(lambda: server.groups.delete(str(group.id)), "404012")
    assert of_group(server).id != group.id


def test_changes_of_groups_that_are_refused(sandbox: Sandbox, server: tsc.Server):
    """Prevents: a pipeline sets up groups that no server would let it have."""
    alice = user(sandbox, ALICE)
    group, everybody = of_group(server, alice), everyone(server)
    refused(lambda: server.groups.create(tsc.GroupItem("READERS")), "409009")
    directory = tsc.GroupItem("From a directory", domain_name="example.com")
    refused(lambda: server.groups.create_AD_group(directory), "400000")
    refused(lambda: server.groups.add_user(group, str(alice.user_id)), "409011")
    refused(lambda: server.groups.add_user(group, "nobody"), "404002")
    refused(lambda: server.groups.remove_user(group, str(server.user_id)), "404002")
    refused(lambda: server.groups.delete(everybody.id), "403004")
    refused(lambda: server.groups.remove_user(everybody, str(alice.user_id)), "403004")
    refused(lambda: alice.groups.create(tsc.GroupItem("Mine")), "403004")
    refused(lambda: members(alice, group), "403004")


@pytest.mark.parametrize("kind", ["workbook", "datasource", "flow", "lens"])
def test_default_permissions(sandbox: Sandbox, server: tsc.Server, kind: str):
    """Prevents: a pipeline that prepares a project works for one kind of content only."""
    project, herself = new_project(server, "New"), user(sandbox, ALICE).user_id

    def shown_defaults(of: Any) -> dict:
        getattr(server.projects, f"populate_{kind}_default_permissions")(of)
        return shown(getattr(of, f"default_{kind}_permissions"))

    rule = tsc.PermissionsRule(server.users.get_by_id(str(herself)), {"ChangeHierarchy": "Deny"})
    update = getattr(server.projects, f"update_{kind}_default_permissions")
    assert ("user", herself) in shown(update(project, [rule]))
    assert shown_defaults(project)["user", herself] == {"ChangeHierarchy": "Deny"}
    inner = new_project(server, "Inner", parent_id=project.id)
    assert shown_defaults(inner) == shown_defaults(project)
    getattr(server.projects, f"delete_{kind}_default_permissions")(project, rule)
    assert ("user", herself) not in shown_defaults(project)
    assert shown_defaults(inner)["user", herself] == {"ChangeHierarchy": "Deny"}


def test_default_permissions_of_one_kind(sandbox: Sandbox, server: tsc.Server):
    """Prevents: what is set for workbooks to come also counts for data sources."""
    project = new_project(server, "New")
    rule = tsc.PermissionsRule(everyone(server), {"ExportData": "Allow"})
    server.projects.update_workbook_default_permissions(project, [rule])
    server.projects.populate_datasource_default_permissions(project)
    ((_, capabilities),) = shown(project.default_datasource_permissions).items()
    assert capabilities == {"Read": "Allow", "Connect": "Allow"}
    refused(
        lambda: server.projects.update_datasource_default_permissions(project, [rule]), "400000"
    )
    path = f"sites/{{site}}/projects/{project.id}/default-permissions/dreams"
    assert code_of(call(sandbox, "GET", path, server=server)) == "404003"


def test_project_closed_to_others(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a pipeline publishes where its user has no right to, until production."""
    project, alice = new_project(server, "Closed"), user(sandbox, ALICE)
    server.projects.delete_permission(
        project, tsc.PermissionsRule(everyone(server), {"Write": "Allow"})
    )
    item = tsc.DatasourceItem(project.id, name="Hers")
    refused(lambda: alice.datasources.publish(item, one_row, "CreateNew"), "403007")
    job = server.datasources.publish(item, one_row, "CreateNew", as_job=True)
    assert server.jobs.wait_for_job(job).finish_code == 0
    refused(lambda: alice.datasources.publish(item, one_row, "Overwrite"), "403007")


def test_right_that_ends_before_the_job(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a queued publish takes effect in a project that was closed meanwhile."""
    project, alice = new_project(server, "Closing"), user(sandbox, ALICE)
    item = tsc.DatasourceItem(project.id, name="Hers")
    with sandbox.held_jobs():
        job = alice.datasources.publish(item, one_row, "CreateNew", as_job=True)
        server.projects.delete_permission(
            project, tsc.PermissionsRule(everyone(server), {"Write": "Allow"})
        )
    with pytest.raises(tsc.server.endpoint.exceptions.JobFailedException):
        alice.jobs.wait_for_job(job)


def test_others_with_overwrite(sandbox: Sandbox, server: tsc.Server, one_row: Path, two_rows: Path):
    """Prevents: a pipeline cannot adopt somebody's data source with the rights that suffice."""
    item, alice = publish(server, one_row), user(sandbox, ALICE)
    refused(lambda: publish(alice, two_rows, mode="Overwrite"), "403007")
    rights = {"Write": "Allow", "ExportXml": "Allow"}
    allow(server, item, server.users.get_by_id(alice.user_id), rights)
    assert publish(alice, two_rows, mode="Overwrite").id == item.id
    assert len(rows_on_server(alice, item.id)) == 2
    assert server.datasources.get_by_id(item.id).owner_id == server.user_id
    assert alice.datasources.add_tags(item, ["hers"]) == {"hers"}
    refused(lambda: alice.datasources.delete(item.id), "403004")


def test_leaders_of_a_project(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a project leader cannot create the projects that a pipeline declares."""
    outer, alice = new_project(server, "Outer"), user(sandbox, ALICE)
    inside = publish(server, one_row)
    inside.project_id = outer.id
    server.datasources.update(inside)
    refused(lambda: new_project(alice, "Inner", parent_id=outer.id), "403004")
    herself = server.users.get_by_id(alice.user_id)
    leads = tsc.PermissionsRule(herself, {"ProjectLeader": "Allow"})
    server.projects.update_permissions(outer, [leads])
    inner = new_project(alice, "Inner", parent_id=outer.id)
    assert new_project(alice, "Innermost", parent_id=inner.id).owner_id == alice.user_id
    assert len(rows_on_server(alice, inside.id)) == 1
    alice.datasources.populate_permissions(inside)
    assert inside.permissions
    alice.projects.delete(inner.id)
    refused(lambda: new_project(alice, "On top"), "403004")
    refused(lambda: alice.projects.delete(outer.id), "403004")


@pytest.mark.parametrize(
    ("capabilities", "code"),
    [
        ('<user id="{user}"/><capabilities><capability name="Fly" mode="Allow"/>', "400000"),
        ('<user id="{user}"/><capabilities><capability name="Read" mode="Maybe"/>', "400000"),
        (
            '<user id="{user}"/><capabilities><capability name="ProjectLeader" mode="Allow"/>',
            "400000",
        ),
        ('<user id="nobody"/><capabilities><capability name="Read" mode="Allow"/>', "404002"),
        ('<group id="nobody"/><capabilities><capability name="Read" mode="Allow"/>', "404012"),
        ('<capabilities><capability name="Read" mode="Allow"/>', "400000"),
    ],
)
def test_senseless_rules(
    sandbox: Sandbox, server: tsc.Server, one_row: Path, capabilities: str, code: str
):
    """Prevents: a rule that real servers refuse is stored and counts for nothing."""
    item = publish(server, one_row)
    grantee = capabilities.replace("{user}", str(server.user_id)) + "</capabilities>"
    body = (
        f"<tsRequest><permissions><granteeCapabilities>{grantee}</granteeCapabilities>"
        "</permissions></tsRequest>"
    )
    path = f"sites/{{site}}/datasources/{item.id}/permissions"
    assert code_of(call(sandbox, "PUT", path, server=server, data=body)) == code


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ('<workbook id="{item}"/>', "400000"),
        ('<project id="{item}"/>', "400000"),
        ('<datasource id="another"/>', "404009"),
        ('<datasource id="{item}"/>', ""),
    ],
)
def test_rules_about_something_else(
    sandbox: Sandbox, server: tsc.Server, one_row: Path, named: str, code: str
):
    """Prevents: rules meant for one thing are given to another."""
    item = publish(server, one_row)
    body = f"<tsRequest><permissions>{named.replace('{item}', item.id)}</permissions></tsRequest>"
    path = f"sites/{{site}}/datasources/{item.id}/permissions"
    answer = call(sandbox, "PUT", path, server=server, data=body)
    assert (code_of(answer) if code else "") == code


def test_rules_in_json(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: of several grantees, clients that read JSON see the last one alone."""
    item = publish(server, one_row)
    allow(server, item, server.users.get_by_id(server.user_id), {"Read": "Allow"})
    path = f"sites/{{site}}/datasources/{item.id}/permissions"
    headers = {"Accept": "application/json"}
    answer = call(sandbox, "GET", path, server=server, headers=headers).json()
    grantees = answer["permissions"]["granteeCapabilities"]
    assert {next(iter(each)) for each in grantees} == {"user", "group"}
    assert answer["permissions"]["datasource"]["id"] == item.id
