"""Rights that depend on site roles, groups, restarts, queued jobs, scopes and locks."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.access import (
    LOCKED,
    LOCKED_WITHOUT_NESTED,
    MANAGED_BY_OWNER,
    Access,
    Rule,
    RuleSet,
    Subject,
)
from tableau_sandbox.http.app import API_ROUTES
from tableau_sandbox.options import UserSeed
from tableau_sandbox.rest.router import Route
from tableau_sandbox.store.records import Datasource, Project, User
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE, VIEWER
from tableau_sandbox_tests.samples import (
    TIMEOUT,
    call,
    code_of,
    default_project,
    multipart,
    publish,
    rows_on_server,
    signed_in,
    user,
)
from tableau_sandbox_tests.test_sign_in import token
from tableau_sandbox_tests.test_updates import publish_job

MADE_UP = ["tableau:*", "tableau:*:*", "tableau:everything:*", "tableau:datasources", "*", ":*"]
EVERY_SCOPE = {scope for route in API_ROUTES for scope in route.scopes}
# Calls that need no scope: sign-in, sign-out, versions, and the lists of tokens.
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
    """Prevents: generous rules let a user do more than the site role of the user allows."""
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
        refused = pytest.raises(tsc.ServerResponseError, match=code)
        with refused if code else nullcontext():
            action()


def test_members_of_a_group(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a pipeline's rules for a group apply to all users, or a restart drops the group."""
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


def test_right_that_ends_before_the_job(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a queued publish takes effect in a project that has been closed since."""
    project, alice = server.projects.create(tsc.ProjectItem("Closing")), user(sandbox, ALICE)
    item = tsc.DatasourceItem(project.id, name="Hers")
    with sandbox.held_jobs():
        job = alice.datasources.publish(item, one_row, "CreateNew", as_job=True)
        server.projects.delete_permission(project, for_everyone(server, Write="Allow"))
    # Only administrators may ask for jobs, so the administrator waits for the job.
    with pytest.raises(tsc.server.endpoint.exceptions.JobFailedException):
        server.jobs.wait_for_job(job)


@pytest.mark.parametrize(
    ("who", "deleted", "change", "changed"),
    [("admin", "403003", "name", "403005"), ("alice", "403003", "description", "403004")],
)
def test_default_project(sandbox: Sandbox, who: str, deleted: str, change: str, changed: str):
    """Prevents: a client deletes or renames the default project, which each site needs."""
    server = user(sandbox, ALICE) if who == "alice" else signed_in(sandbox)
    path = f"sites/{{site}}/projects/{default_project(server)}"
    assert code_of(call(sandbox, "DELETE", path, server=server)) == deleted
    body = f'<tsRequest><project {change}="else"/></tsRequest>'
    assert code_of(call(sandbox, "PUT", path, server=server, data=body)) == changed


def answered(sandbox: Sandbox, route: Route, *scopes: str) -> str:
    """Return the status or the code of a call by a session with these scopes."""
    server = signed_in(sandbox, tsc.JWTAuth(token(scp=list(scopes))))
    path = re.sub(r"\{(?!site)\w+\}", "nothing", route.pattern)
    path = path if route.versioned else f"../{path}"
    response = call(sandbox, route.method, path, server=server)
    return code_of(response) if "<error" in response.text else str(response.status_code)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.pattern}")
def test_each_call_needs_its_own_scope(shared_sandbox: Sandbox, route: Route):
    """Prevents: an app works here with wrong scopes, and is refused in production."""
    # Neither `others` nor `MADE_UP` has a wildcard that includes a scope of the call.
    others = EVERY_SCOPE - set(route.scopes)
    assert route.scopes
    assert answered(shared_sandbox, route, *others, *MADE_UP) == "401002"
    for scope in route.scopes:
        for granted in (scope, f"{scope.rpartition(':')[0]}:*"):
            assert answered(shared_sandbox, route, granted, "tableau:nothing:read") != "401002"


def test_rights_survive_a_restart(sandbox: Sandbox, server: tsc.Server):
    """Prevents: a restart opens closed projects, or changes what an app's session may do."""
    app = signed_in(sandbox, tsc.JWTAuth(token(scp=["tableau:content:read"])))
    project, alice = server.projects.filter(name="Default")[0], user(sandbox, ALICE)
    server.projects.delete_permission(project, for_everyone(server, Read="Allow", Write="Allow"))
    sandbox.restart()
    assert alice.projects.get()[0] == []
    assert app.projects.get()[0]
    with pytest.raises(tsc.FailedSignInError, match="401002"):
        app.projects.create(tsc.ProjectItem("New"))
    app.auth.sign_out()


OF_D = RuleSet("d", Subject.DATASOURCE)
PLACES = ("top", "outer", "inner")
OF_TOP, OF_OUTER, OF_INNER = (RuleSet(luid, Subject.PROJECT) for luid in PLACES)
IN_TOP, IN_OUTER, IN_INNER = (RuleSet(luid, Subject.DEFAULTS) for luid in PLACES)
ALLOW = ("ann", "Read", "Allow")
LEADS = ("ann", "ProjectLeader", "Allow")
UNLOCKED = (MANAGED_BY_OWNER,) * 3


def may_read(thing: str, rules: dict[RuleSet, tuple], *, locks: tuple[str, ...]) -> bool:
    """Return whether "ann" may read the data source "d", or one of the projects around it.

    "d" is in the project "inner", which is in "outer", which is in "top".
    """

    def project(luid: str, parent: str | None, lock: str) -> Project:
        return Project(luid, "s", parent, "boss", luid, "", lock, "", "")

    blank: dict[str, Any] = dict.fromkeys(Datasource.__dataclass_fields__, "")
    around = zip(PLACES, (None, *PLACES), locks, strict=False)
    projects = {luid: project(luid, parent, lock) for luid, parent, lock in around}
    access = Access(
        projects=projects,
        rules_of=lambda of: [Rule(*each) for each in rules.get(of, ())],
        groups_of=lambda _: (),
    )
    one = Datasource(**blank | {"luid": "d", "project": "inner", "owner": "boss"})
    return access.may(
        User("ann", "ann", "Creator"), "Read", one if thing == "d" else projects[thing]
    )


NONE, WITHOUT = MANAGED_BY_OWNER, LOCKED_WITHOUT_NESTED


@pytest.mark.parametrize(
    ("locks", "thing", "counts"),
    [
        (UNLOCKED, "d", OF_D),
        (UNLOCKED, "inner", OF_INNER),
        ((NONE, NONE, WITHOUT), "d", IN_INNER),
        ((NONE, NONE, WITHOUT), "inner", OF_INNER),
        ((NONE, WITHOUT, NONE), "d", OF_D),
        ((NONE, NONE, LOCKED), "d", IN_INNER),
        ((NONE, LOCKED, NONE), "d", IN_OUTER),
        ((NONE, LOCKED, NONE), "inner", OF_OUTER),
        ((NONE, LOCKED, NONE), "outer", OF_OUTER),
        ((NONE, LOCKED, WITHOUT), "d", IN_OUTER),
        ((LOCKED, LOCKED, LOCKED), "d", IN_TOP),
        ((LOCKED, LOCKED, NONE), "inner", OF_TOP),
    ],
)
def test_locks(locks: tuple[str, ...], thing: str, counts: RuleSet):
    """Prevents: a rule counts although a lock has replaced it, or the new rule does not count."""
    every = (OF_D, OF_TOP, OF_OUTER, OF_INNER, IN_TOP, IN_OUTER, IN_INNER)
    found = {each for each in every if may_read(thing, {each: (ALLOW,)}, locks=locks)}
    assert found == {counts}
    # The leadership of the inner project is also a rule, which an outer lock replaces.
    assert may_read("d", {OF_INNER: (LEADS,)}, locks=locks) is (LOCKED not in locks[:2])


DELETE = '{"actions":[{"action":"delete","target-table":"Extract","condition":true}]}'
RULE = (
    '<permissions><granteeCapabilities><user id="%s"/><capabilities><capability name="Read"'
    ' mode="Allow"/></capabilities></granteeCapabilities></permissions>'
)
# Valid bodies, by the method and the end of the path.
BODIES = {
    "POST projects": '<project name="P" description="d"/>',
    "PUT {project}": '<project description="else"/>',
    "PUT {datasource}": '<datasource isCertified="true"/>',
    "PUT tags": '<tags><tag label="a"/><tag label="b c"/></tags>',
    "PUT {connection}": '<connection serverAddress="x" serverPort="1" userName="u"/>',
    "POST refresh": "<extractRefresh/>",
    "PUT permissions": RULE,
    "PUT permissions/datasources": RULE,
    "PATCH data": DELETE,
    "POST groups": '<group name="G"/>',
    "POST {group}/users": '<user id="%s"/>',
    "POST datasource/{datasource}": '<dataQualityWarning type="STALE"/>',
    "PUT {schedule}/datasources": '<task><datasource id="%d"/></task>',
    "POST extractRefreshes": (
        '<extractRefresh><datasource id="%d"/></extractRefresh>'
        '<schedule><frequencyDetails start="06:00:00"/></schedule>'
    ),
}


def body_of(
    method: str, pattern: str, *, user: str, item: str, file: Path
) -> tuple[bytes, dict[str, str]]:
    """Return a valid body for a call of the API, and the headers of the body."""
    if pattern.endswith(("{site}/datasources", "{upload}")):
        text = '<tsRequest><datasource name="Mine"/></tsRequest>'
        if pattern.endswith("{upload}"):
            return multipart(("request_payload", "", ""), ("tableau_file", "file", b"block"))
        part = ("tableau_datasource", "x.hyper", file.read_bytes())
        return multipart(("request_payload", "", text), part)
    body = next(
        (
            text
            for end, text in BODIES.items()
            if method == end.split()[0] and pattern.endswith(end.split()[1])
        ),
        "",
    )
    if body[:1] == "{":
        return body.encode(), {"Content-Type": "application/json"}
    return f"<tsRequest>{body.replace('%s', user).replace('%d', item)}</tsRequest>".encode(), {}


def everything(server: tsc.Server, item: tsc.DatasourceItem) -> list[str]:
    """Return all values that the calls could change."""
    found = server.datasources.get_by_id(str(item.id))
    server.datasources.populate_permissions(found)
    server.datasources.populate_connections(found)
    server.datasources.populate_dqw(found)
    server.projects.populate_permissions(first := server.projects.get()[0][0])
    lists = (server.jobs, server.datasources, server.groups, server.tasks)
    counted = [len(each.get()[0]) for each in lists]
    shown = (vars(found), len(found.dqws), vars(first), counted, rows_on_server(server, item.id))
    return [re.sub(r"<bound.*?>|0x\w+", "", repr(each)) for each in shown]


@pytest.mark.slow
def test_those_without_rights_change_nothing(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    """Prevents: a call does not check the rights of its user."""
    project = server.projects.create(tsc.ProjectItem("Closed"))
    item = publish(server, one_row)
    server.datasources.populate_connections(item)
    server.datasources.add_tags(item, ["a"])
    (warning,) = server.datasources.add_dqw(item, tsc.DQWItem("WARNING"))
    job = publish_job(server, one_row, name="By job")
    sandbox.wait_until_idle()
    known = {
        "site": server.site_id,
        "user": server.user_id,
        "project": project.id,
        "job": job.id,
        "datasource": item.id,
        "connection": item.connections[0].id,
        "label": "a",
        "schedule": "5ced0000-0000-4000-8000-000000000001",
        "upload": server.fileuploads.initiate(),
        "grantees": "users",
        "capability": "Read",
        "grantee": server.user_id,
        "mode": "Allow",
        "group": server.groups.get()[0][0].id,
        "warning": warning.id,
    }

    before = everything(server, item)
    asked = [
        route
        for route in API_ROUTES
        if route.method != "GET" and not re.search("auth/|graphql", route.pattern)
    ]
    for route, given in product(asked, ("a|b|c", str(user(sandbox, VIEWER).auth_token))):
        about = {"user": str(server.user_id), "item": item.id, "file": one_row}
        body, headers = body_of(route.method, route.pattern, **about)
        url = f"{sandbox.url}/api/3.27/{route.pattern.format_map(known)}"
        headers |= {"X-Tableau-Auth": given, "RequestID": str(uuid4())}
        answer = requests.request(route.method, url, data=body, headers=headers, timeout=TIMEOUT)
        # The refusal must be about the user, not the request. The code 404015 is about the upload,
        # which is unknown to other users.
        refused = answer.status_code in (401, 403) or "404015" in answer.text
        assert refused, f"{route.method} {route.pattern}: {answer.text}"
    assert everything(server, item) == before
