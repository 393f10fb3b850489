"""All calls of the API that could change something, made by those who may change nothing."""

import re
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.http.app import API_ROUTES
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import VIEWER
from tableau_sandbox_tests.samples import (
    TIMEOUT,
    default_project,
    multipart,
    publish,
    rows_on_server,
    signed_in,
    user,
)

DELETE = '{"actions":[{"action":"delete","target-table":"Extract","condition":true}]}'
RULE = (
    '<permissions><granteeCapabilities><user id="%s"/><capabilities><capability name="Read"'
    ' mode="Allow"/></capabilities></granteeCapabilities></permissions>'
)
# Good bodies by the ends of their methods and paths.
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
    """A good body for a method of the API, and its headers."""
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
    """All that the calls could change."""
    found = server.datasources.get_by_id(str(item.id))
    server.datasources.populate_permissions(found)
    server.datasources.populate_connections(found)
    server.datasources.populate_dqw(found)
    server.projects.populate_permissions(first := server.projects.get()[0][0])
    lists = (server.jobs, server.datasources, server.groups, server.tasks)
    counted = [len(each.get()[0]) for each in lists]
    shown = (
        vars(found),
        len(found.dqws),
        vars(first),
        counted,
        rows_on_server(server, item.id),
    )
    return [re.sub(r"<bound.*?>|0x\w+", "", repr(each)) for each in shown]


@pytest.mark.parametrize("who", ["nobody", "a viewer"])
def test_those_without_rights_change_nothing(
    start_sandbox: Callable[..., Sandbox], one_row: Path, who: str
):
    """Prevents: a call that forgets to ask who makes it."""
    sandbox = start_sandbox(users=(VIEWER,))
    server = signed_in(sandbox)
    project = server.projects.create(tsc.ProjectItem("Closed"))
    item = publish(server, one_row)
    server.datasources.populate_connections(item)
    server.datasources.add_tags(item, ["a"])
    (warning,) = server.datasources.add_dqw(item, tsc.DQWItem("WARNING"))
    queued = tsc.DatasourceItem(default_project(server), name="By job")
    job = server.datasources.publish(queued, one_row, "Overwrite", as_job=True)
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
    token = str(user(sandbox, VIEWER).auth_token) if who == "a viewer" else "a|b|c"
    for route in API_ROUTES:
        if route.method == "GET" or "auth/" in route.pattern or "graphql" in route.pattern:
            continue
        about = {"user": str(server.user_id), "item": item.id, "file": one_row}
        body, headers = body_of(route.method, route.pattern, **about)
        url = f"{sandbox.url}/api/3.27/{route.pattern.format_map(known)}"
        headers |= {"X-Tableau-Auth": token, "RequestID": str(uuid4())}
        answer = requests.request(route.method, url, data=body, headers=headers, timeout=TIMEOUT)
        # What it refuses is who asks, and not what; an upload of another user is unknown.
        refused = answer.status_code in (401, 403) or "404015" in answer.text
        assert refused, f"{route.method} {route.pattern}: {answer.text}"
    assert everything(server, item) == before
