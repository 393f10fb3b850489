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
    path, nothing = f"sites/{{site}}/projects/{project.id}", "<tsRequest><project/></tsRequest>"
    assert code_of(call(sandbox, "PUT", path, server=alice, data=nothing)) == "403004"
    for action in ("", "/connections", "/content", "/revisions"):
        path = f"sites/{{site}}/datasources/{hidden.id}{action}"
        assert code_of(call(sandbox, "GET", path, server=alice)) == "403004"


def test_default_permissions(sandbox: Sandbox, server: tsc.Server):
    """Prevents: a project that a pipeline prepares begins with other rules than it has."""
    project, herself = new_project(server, "New"), user(sandbox, ALICE).user_id

    def defaults(of: Any) -> dict[str, str] | None:
        server.projects.populate_datasource_default_permissions(of)
        return shown(of.default_datasource_permissions).get(("user", herself))

    rule = tsc.PermissionsRule(server.users.get_by_id(str(herself)), {"ChangeHierarchy": "Deny"})
    server.projects.update_datasource_default_permissions(project, [rule])
    inner = new_project(server, "Inner", parent_id=project.id)
    assert defaults(project) == defaults(inner) == {"ChangeHierarchy": "Deny"}
    server.projects.delete_datasource_default_permissions(project, rule)
    assert (defaults(project), defaults(inner)) == (None, {"ChangeHierarchy": "Deny"})


def test_deleted_rules_stay_deleted(sandbox: Sandbox, server: tsc.Server):
    """Prevents: a restart opens what was closed to all users."""
    project, alice = server.projects.filter(name="Default")[0], user(sandbox, ALICE)
    rule = tsc.PermissionsRule(everyone(server), {"Read": "Allow", "Write": "Allow"})
    server.projects.delete_permission(project, rule)
    sandbox.restart()
    assert alice.projects.get()[0] == []


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


ALLOWED = '<capabilities><capability name="{}" mode="{}"/></capabilities></granteeCapabilities>'
SENSELESS = [
    *[
        (f'<granteeCapabilities><user id="{{user}}"/>{ALLOWED.format(*rule)}', "400000")
        for rule in (("Fly", "Allow"), ("Read", "Maybe"), ("ProjectLeader", "Allow"))
    ],
    (f'<granteeCapabilities><user id="x"/>{ALLOWED.format("Read", "Allow")}', "404002"),
    (f'<granteeCapabilities><group id="x"/>{ALLOWED.format("Read", "Allow")}', "404012"),
    (f"<granteeCapabilities>{ALLOWED.format('Read', 'Allow')}", "400000"),
    ('<workbook id="{item}"/>', "400000"),
    ('<project id="{item}"/>', "400000"),
    ('<datasource id="another"/>', "404009"),
]


def test_senseless_rules(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a rule that real servers refuse is stored, or meant for something else."""
    item = publish(server, one_row)
    before = of_datasource(server, item)
    path = f"sites/{{site}}/datasources/{item.id}/permissions"
    for rules, code in SENSELESS:
        named = rules.replace("{user}", str(server.user_id)).replace("{item}", item.id)
        body = f"<tsRequest><permissions>{named}</permissions></tsRequest>"
        assert code_of(call(sandbox, "PUT", path, server=server, data=body)) == code, rules
    assert of_datasource(server, item) == before
