import re

import pytest
import tableauserverclient as tsc
from hypothesis import given, settings
from hypothesis import strategies as st

from tableau_sandbox.access import scopes_allow
from tableau_sandbox.http.app import API_ROUTES
from tableau_sandbox.rest.router import Route
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.access.test_connected_app import token
from tableau_sandbox_tests.samples import call, code_of, signed_in

MADE_UP = ["tableau:*", "tableau:*:*", "tableau:everything:*", "tableau:datasources", "*", ":*"]
EVERY_SCOPE = {scope for route in API_ROUTES for scope in route.scopes}
FREE = {"auth/signin", "auth/signout", "serverInfo"}
ROUTES = [route for route in API_ROUTES if route.pattern not in FREE]


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


def test_calls_without_scopes(shared_sandbox: Sandbox, shared_server: tsc.Server):
    """Prevents: scopes, which only connected apps have, keep all others out, or an app in."""
    assert shared_server.projects.get()[0]
    signed_out = app_session(shared_sandbox, "tableau:jobs:read")
    signed_out.auth.sign_out()


def test_scopes_survive_a_restart(sandbox: Sandbox):
    """Prevents: after a restart, the session of an app may do everything, or nothing."""
    server = app_session(sandbox, "tableau:content:read")
    sandbox.restart()
    assert server.projects.get()[0]
    with pytest.raises(tsc.FailedSignInError, match="401002"):
        server.projects.create(tsc.ProjectItem("New"))


PARTS = st.sampled_from(["tableau", "jobs", "tasks", "read", "run", "*", ""])
GRANTED = st.lists(st.lists(PARTS, min_size=1, max_size=4).map(":".join), max_size=4)
NEEDED = st.lists(
    st.builds(
        "tableau:{}:{}".format, st.sampled_from(["jobs", "tasks"]), st.sampled_from(["read", "run"])
    ),
    max_size=2,
)


@settings(deadline=None)
@given(granted=st.one_of(GRANTED, NEEDED), needed=NEEDED)
def test_wildcards_cover_one_resource(granted: list[str], needed: list[str]):
    """Prevents: a wildcard grants more than the actions on its own resource."""
    covered = [
        call
        for call in needed
        for scope in granted
        if scope.split(":") == call.split(":") or scope.split(":") == [*call.split(":")[:2], "*"]
    ]
    assert scopes_allow(granted, needed) is bool(covered)
