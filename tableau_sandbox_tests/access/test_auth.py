from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import call, code_of, signed_in


def token_auth(site: str = "") -> tsc.PersonalAccessTokenAuth:
    return tsc.PersonalAccessTokenAuth(Sandbox.token_name, Sandbox.token_secret, site)


def password_auth(site: str = "") -> tsc.TableauAuth:
    return tsc.TableauAuth(Sandbox.user, Sandbox.password, site)


def refused_with(action: Callable[[], object]) -> str:
    with pytest.raises((tsc.ServerResponseError, tsc.FailedSignInError)) as caught:
        action()
    return caught.value.code


@pytest.mark.parametrize("auth", [password_auth(), token_auth(), password_auth("second")])
def test_sign_in_and_out(sandbox: Sandbox, auth: tsc.TableauAuth):
    # Prevents: one of the ways to sign in does not work, or a sign-out leaves the session alive.
    server = signed_in(sandbox, auth)
    token = server.auth_token
    assert server.users.get_by_id(server.user_id).name == "admin"
    site = server.site_id
    server.auth.sign_out()
    headers = {"X-Tableau-Auth": token}
    after = call(sandbox, "GET", f"sites/{site}", headers=headers)
    assert code_of(after) == "401002"


@pytest.mark.parametrize(
    "auth",
    [
        tsc.TableauAuth("admin", "wrong"),
        tsc.TableauAuth("nobody", "admin"),
        tsc.PersonalAccessTokenAuth("pipeline", "wrong"),
        password_auth("no-such-site"),
        tsc.JWTAuth("a.b.c"),
    ],
)
def test_wrong_credentials(shared_sandbox: Sandbox, auth: tsc.TableauAuth):
    # Prevents: a pipeline with a wrong secret or site seems to work against the sandbox.
    assert refused_with(lambda: signed_in(shared_sandbox, auth)) == "401001"


def test_second_sign_in_with_a_token_ends_the_first(sandbox: Sandbox):
    # Prevents: parallel workers that share a token pass here and fail in production.
    first, second = signed_in(sandbox, token_auth()), signed_in(sandbox, token_auth())
    assert refused_with(first.projects.get) == "401002"
    assert second.projects.get()[0]
    # A password has no such limit.
    several = [signed_in(sandbox, password_auth()) for _ in range(2)]
    assert all(server.projects.get()[0] for server in several)


def test_token_sessions_can_be_unlimited(start_sandbox: Callable[..., Sandbox]):
    # Prevents: the option that turns the limit off does nothing.
    sandbox = start_sandbox(one_session_per_token=False)
    several = [signed_in(sandbox, token_auth()) for _ in range(2)]
    assert all(server.projects.get()[0] for server in several)


def test_sessions_expire(start_sandbox: Callable[..., Sandbox]):
    # Prevents: a long run is never tested against a session that ends under it.
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    sandbox = start_sandbox(clock=lambda: now[0], session_minutes=10)
    server = signed_in(sandbox, password_auth())
    now[0] += timedelta(minutes=9, seconds=59)
    assert server.projects.get()[0]
    now[0] += timedelta(seconds=1)
    assert refused_with(server.projects.get) == "401002"


@pytest.mark.parametrize(
    "credentials",
    [
        *("", 'name="admin"', 'personalAccessTokenName="pipeline"'),
        'name="admin" password="admin" personalAccessTokenName="pipeline"',
    ],
)
def test_incomplete_credentials_are_malformed(shared_sandbox: Sandbox, credentials: str):
    """Prevents: half a set of credentials is mistaken for a wrong one."""
    body = f"<tsRequest><credentials {credentials}><site contentUrl=''/></credentials></tsRequest>"
    assert code_of(call(shared_sandbox, "POST", "auth/signin", data=body)) == "400000"


def test_other_sites(sandbox: Sandbox, server: tsc.Server):
    """Prevents: a session reads or changes a site to which it does not belong."""
    second = signed_in(sandbox, password_auth("second")).site_id
    assert second != server.site_id
    for path in (f"sites/{second}", f"sites/{second}/projects"):
        assert code_of(call(sandbox, "GET", path, server=server)) == "403004"
    for path in ("sites/nowhere", "sites/nowhere/projects"):
        assert code_of(call(sandbox, "GET", path, server=server)) == "404000"
