"""Rights that depend on what no other client can see: site roles, restarts, queued jobs, scopes."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.http.app import API_ROUTES
from tableau_sandbox.options import UserSeed
from tableau_sandbox.rest.router import Route
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.access.test_sign_in import token
from tableau_sandbox_tests.conftest import ALICE
from tableau_sandbox_tests.samples import call, code_of, publish, rows_on_server, signed_in, user

MADE_UP = ["tableau:*", "tableau:*:*", "tableau:everything:*", "tableau:datasources", "*", ":*"]
EVERY_SCOPE = {scope for route in API_ROUTES for scope in route.scopes}
# There is no scope for the lists of tokens.
FREE = {
    "auth/signin",
    "auth/signout",
    "serverInfo",
    "sites/{site}/users/{user}/personal-access-tokens",
}
ROUTES = [route for route in API_ROUTES if route.pattern not in FREE]


def for_everyone(server: tsc.Server, **capabilities: str) -> tsc.PermissionsRule:
    (group,) = server.groups.filter(name="All Users")
    return tsc.PermissionsRule(group, capabilities)


@pytest.mark.parametrize(
    ("role", "expected"),
    [("Viewer", "403004 403004 403007 403004"), ("Explorer", " 403004 403007 403004")],
)
def test_no_rule_gives_more_than_a_role(
    start_sandbox: Callable[..., Sandbox], one_row: Path, role: str, expected: str
):
    """Prevents: a token without a Creator's role passes a pipeline's tests, by generous rules."""
    seed = UserSeed(name="ed", password="ed", site_role=role)
    sandbox = start_sandbox(users=(seed,))
    server, ed = signed_in(sandbox), user(sandbox, seed)
    item = publish(server, one_row)
    rule = for_everyone(server, ExportXml="Allow", Write="Allow", Delete="Allow")
    server.datasources.update_permissions(item, [rule])
    actions = (
        lambda: rows_on_server(ed, item.id),
        ed.fileuploads.initiate,
        lambda: publish(ed, one_row, mode="Overwrite"),
        lambda: ed.datasources.delete(item.id),
    )
    for action, code in zip(actions, expected.split(" "), strict=True):
        if code:
            with pytest.raises(tsc.ServerResponseError, match=code):
                action()
        else:
            action()


def test_members_of_a_group(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a group that a pipeline names does not exist, or its rules are for everybody."""
    item, group = publish(server, one_row), server.groups.create(tsc.GroupItem("Analysts"))
    (alice,) = server.users.filter(name=ALICE.name)
    server.datasources.delete_permission(item, for_everyone(server, Read="Allow", Connect="Allow"))
    rule = tsc.PermissionsRule(group, {"Read": "Allow", "VizqlDataApiAccess": "Deny"})
    server.datasources.update_permissions(item, [rule])
    assert user(sandbox, ALICE).datasources.get()[0] == []
    server.groups.add_user(group, alice.id)
    sandbox.restart()
    assert [each.id for each in user(sandbox, ALICE).datasources.get()[0]] == [item.id]
    server = signed_in(sandbox)
    for refused in (
        lambda: server.groups.create(tsc.GroupItem("analysts")),
        lambda: server.groups.add_user(group, alice.id),
        lambda: user(sandbox, ALICE).groups.create(tsc.GroupItem("Hers")),
    ):
        with pytest.raises(tsc.ServerResponseError, match=r"409009|409011|403004"):
            refused()
    server.datasources.populate_permissions(item)
    assert item.permissions == [rule]


def test_deleted_rules_stay_deleted(sandbox: Sandbox, server: tsc.Server):
    """Prevents: a restart opens what was closed to all users."""
    project, alice = server.projects.filter(name="Default")[0], user(sandbox, ALICE)
    server.projects.delete_permission(project, for_everyone(server, Read="Allow", Write="Allow"))
    sandbox.restart()
    assert alice.projects.get()[0] == []


def test_right_that_ends_before_the_job(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a queued publish takes effect in a project that was closed meanwhile."""
    project, alice = server.projects.create(tsc.ProjectItem("Closing")), user(sandbox, ALICE)
    item = tsc.DatasourceItem(project.id, name="Hers")
    with sandbox.held_jobs():
        job = alice.datasources.publish(item, one_row, "CreateNew", as_job=True)
        server.projects.delete_permission(project, for_everyone(server, Write="Allow"))
    with pytest.raises(tsc.server.endpoint.exceptions.JobFailedException):
        alice.jobs.wait_for_job(job)


@pytest.mark.parametrize(
    ("method", "body", "who", "code"),
    [
        ("DELETE", "", "admin", "403003"),
        ("PUT", '<tsRequest><project name="Renamed"/></tsRequest>', "admin", "403005"),
        ("DELETE", "", "alice", "403003"),
        ("PUT", '<tsRequest><project description="x"/></tsRequest>', "alice", "403004"),
    ],
)
def test_default_project(sandbox: Sandbox, method: str, body: str, who: str, code: str):
    """Prevents: what each site needs is gone; on a site of others, this could do harm."""
    server = user(sandbox, ALICE) if who == "alice" else signed_in(sandbox)
    path = f"sites/{{site}}/projects/{server.projects.filter(name='Default')[0].id}"
    assert code_of(call(sandbox, method, path, server=server, data=body)) == code


def test_projects_at_the_top(sandbox: Sandbox, server: tsc.Server):
    """Prevents: whoever is no administrator creates or deletes projects that are in no other."""
    alice, outer = user(sandbox, ALICE), server.projects.create(tsc.ProjectItem("Outer"))
    leads = tsc.PermissionsRule(server.users.get_by_id(alice.user_id), {"ProjectLeader": "Allow"})
    server.projects.update_permissions(outer, [leads])
    for action in (
        lambda: alice.projects.create(tsc.ProjectItem("New")),
        lambda: alice.projects.delete(outer.id),
    ):
        with pytest.raises(tsc.ServerResponseError, match="403004"):
            action()


def app_session(sandbox: Sandbox, *scopes: str) -> tsc.Server:
    return signed_in(sandbox, tsc.JWTAuth(token(scp=list(scopes))))


def answered(sandbox: Sandbox, route: Route, *scopes: str) -> str:
    """The status or the code with which a session with these scopes is answered."""
    server = app_session(sandbox, *scopes)
    path = re.sub(r"\{(?!site)\w+\}", "nothing", route.pattern)
    path = path if route.versioned else f"../{path}"
    response = call(sandbox, route.method, path, server=server)
    return code_of(response) if "<error" in response.text else str(response.status_code)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.pattern}")
def test_each_call_needs_its_own_scope(shared_sandbox: Sandbox, route: Route):
    """Prevents: an app works with scopes that mean something else, and is refused in production."""
    needed = route.scopes
    # The wildcard of a resource is left out with the scope that it covers.
    others = EVERY_SCOPE - set(needed)
    assert needed
    assert answered(shared_sandbox, route, *others, *MADE_UP) == "401002"
    for scope in needed:
        for granted in (scope, f"{scope.rpartition(':')[0]}:*"):
            assert answered(shared_sandbox, route, granted, "tableau:nothing:read") != "401002"


def test_scopes_survive_a_restart(sandbox: Sandbox):
    """Prevents: after a restart, the session of an app may do everything, or nothing."""
    server = app_session(sandbox, "tableau:content:read")
    sandbox.restart()
    assert server.projects.get()[0]
    with pytest.raises(tsc.FailedSignInError, match="401002"):
        server.projects.create(tsc.ProjectItem("New"))
    server.auth.sign_out()
