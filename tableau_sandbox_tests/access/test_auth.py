from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.conftest import ALICE
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
    server.auth.sign_out()
    after = call(sandbox, "GET", "sites", headers={"X-Tableau-Auth": token})
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


def test_switch_site(sandbox: Sandbox):
    # Prevents: clients that move between sites keep a token for the wrong one.
    server = signed_in(sandbox, password_auth())
    first_token, first_site = server.auth_token, server.site_id
    second = next(site for site in tsc.Pager(server.sites) if site.content_url == "second")
    server.auth.switch_site(second)
    assert server.site_id == second.id
    assert server.projects.get()[0][0].name == "Default"
    old = call(sandbox, "GET", "sites", headers={"X-Tableau-Auth": first_token})
    assert code_of(old) == "401002"
    same = call(sandbox, "POST", "auth/switchSite", server=server, data=switch_to("second"))
    assert code_of(same) == "403070"
    gone = call(sandbox, "POST", "auth/switchSite", server=server, data=switch_to("no"))
    assert code_of(gone) == "401003"
    other = call(sandbox, "GET", f"sites/{first_site}/projects", server=server)
    assert code_of(other) == "403004"
    unknown = call(sandbox, "GET", "sites/nowhere/projects", server=server)
    assert code_of(unknown) == "404000"


def test_impersonation(sandbox: Sandbox):
    # Prevents: content ends up with the wrong owner when an administrator acts for someone.
    alice = signed_in(sandbox, tsc.TableauAuth(ALICE.name, ALICE.password)).user_id
    as_alice = tsc.TableauAuth("admin", "admin", user_id_to_impersonate=alice)
    assert signed_in(sandbox, as_alice).user_id == alice
    as_nobody = tsc.TableauAuth("admin", "admin", user_id_to_impersonate="nobody")
    assert refused_with(lambda: signed_in(sandbox, as_nobody)) == "404002"
    by_alice = tsc.TableauAuth(ALICE.name, ALICE.password, user_id_to_impersonate=alice)
    assert refused_with(lambda: signed_in(sandbox, by_alice)) == "401001"


@pytest.mark.parametrize(
    "credentials",
    [
        "",
        'name="admin"',
        'name="admin" password="admin" personalAccessTokenName="pipeline"',
        'personalAccessTokenName="pipeline"',
    ],
)
def test_incomplete_credentials_are_malformed(shared_sandbox: Sandbox, credentials: str):
    # Prevents: half a set of credentials is mistaken for a wrong one.
    body = f"<tsRequest><credentials {credentials}><site contentUrl=''/></credentials></tsRequest>"
    assert code_of(call(shared_sandbox, "POST", "auth/signin", data=body)) == "400000"


def switch_to(content_url: str) -> str:
    return f'<tsRequest><site contentUrl="{content_url}"/></tsRequest>'
