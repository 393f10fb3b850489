"""Projects that lock the permissions of their content."""

from pathlib import Path
from typing import Any

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.access.test_permissions import new_project
from tableau_sandbox_tests.access.test_roles import allow, everyone, refused, user
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.samples import call, rows_on_server

LOCKED = tsc.ProjectItem.ContentPermissions.LockedToProject
LOCKED_ALONE = tsc.ProjectItem.ContentPermissions.LockedToProjectWithoutNested
BY_OWNER = tsc.ProjectItem.ContentPermissions.ManagedByOwner


def published(server: tsc.Server, file: Path, project: Any, name: str = "Inside") -> Any:
    return server.datasources.publish(tsc.DatasourceItem(project.id, name=name), file, "CreateNew")


def let_all_download(server: tsc.Server, project: Any) -> None:
    rule = tsc.PermissionsRule(everyone(server), {"ExportXml": "Allow"})
    server.projects.update_datasource_default_permissions(project, [rule])


def lock(server: tsc.Server, project: Any, how: str) -> None:
    project.content_permissions = how
    assert server.projects.update(project).content_permissions == how


def may_download(server: tsc.Server, item: Any) -> bool:
    try:
        return bool(rows_on_server(server, item.id))
    except tsc.ServerResponseError as error:
        if error.code != "403004":
            raise
        return False


def test_defaults_are_for_what_comes(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a change of defaults reaches what was published before, as in no server."""
    project, alice = new_project(server, "Open"), user(sandbox, ALICE)
    before = published(server, one_row, project, "Before")
    let_all_download(server, project)
    server.projects.populate_datasource_default_permissions(project)
    (rule,) = project.default_datasource_permissions
    assert rule.capabilities == {"Read": "Allow", "Connect": "Allow", "ExportXml": "Allow"}
    after = published(server, one_row, project, "After")
    assert [may_download(alice, item) for item in (before, after)] == [False, True]
    server.projects.delete_datasource_default_permissions(
        project, tsc.PermissionsRule(everyone(server), {"ExportXml": "Allow"})
    )
    assert may_download(alice, after)


@pytest.mark.parametrize("how", [LOCKED, LOCKED_ALONE])
def test_lock_reaches_what_is_there(sandbox: Sandbox, server: tsc.Server, one_row: Path, how: str):
    """Prevents: rules of a data source count although its project locks them."""
    project, alice = new_project(server, "Locked"), user(sandbox, ALICE)
    item = published(server, one_row, project)
    lock(server, project, how)
    let_all_download(server, project)
    assert may_download(alice, item)
    refused(lambda: allow(server, item, everyone(server), {"Write": "Allow"}), "403004")
    path = f"sites/{{site}}/datasources/{item.id}/permissions"
    assert (
        f'<parent type="Project" id="{project.id}"'
        in call(sandbox, "GET", path, server=server).text
    )
    # What counted last counts on when the lock is gone.
    lock(server, project, BY_OWNER)
    server.projects.delete_datasource_default_permissions(
        project, tsc.PermissionsRule(everyone(server), {"ExportXml": "Allow"})
    )
    assert may_download(alice, item)
    allow(server, item, everyone(server), {"Write": "Allow"})


@pytest.mark.parametrize(("how", "reaches"), [(LOCKED, True), (LOCKED_ALONE, False)])
def test_nested_projects(
    sandbox: Sandbox, server: tsc.Server, one_row: Path, how: str, reaches: bool
):
    """Prevents: a lock that spares nested projects reaches them, or the other one does not."""
    outer, alice = new_project(server, "Outer"), user(sandbox, ALICE)
    inner = new_project(server, "Inner", parent_id=outer.id)
    item = published(server, one_row, inner)
    lock(server, outer, how)
    let_all_download(server, outer)
    assert may_download(alice, item) is reaches
    rule = tsc.PermissionsRule(everyone(server), {"ProjectLeader": "Allow"})
    if reaches:
        refused(lambda: server.projects.update_permissions(inner, [rule]), "403004")
    else:
        assert server.projects.update_permissions(inner, [rule])


def test_moving_out_of_a_lock(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a data source that is moved gets rules that nobody gave it."""
    locked, alice = new_project(server, "Locked"), user(sandbox, ALICE)
    elsewhere = new_project(server, "Elsewhere")
    item = published(server, one_row, locked)
    lock(server, locked, LOCKED)
    let_all_download(server, locked)
    item.project_id = elsewhere.id
    server.datasources.update(item)
    assert may_download(alice, item)
