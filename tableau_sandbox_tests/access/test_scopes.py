import re

import pytest
import tableauserverclient as tsc

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
