"""Sessions, beyond what any server's client can ask for: the clock, switches and licenses."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import jwt
import pytest
import tableauserverclient as tsc

from tableau_sandbox.command_line import main
from tableau_sandbox.options import UserSeed
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import ADMIN, signed_in

APP = Sandbox.connected_app
TOKEN = tsc.PersonalAccessTokenAuth(Sandbox.token_name, Sandbox.token_secret)


def token(*, header: dict | None = None, secret: str = APP.secret_value, **claims: object) -> str:
    """A sound token, but for what the arguments change; a claim that is None is left out."""
    sound = {
        "iss": APP.client_id,
        "exp": datetime.now(UTC) + timedelta(minutes=9),
        "jti": str(uuid4()),
        "aud": "tableau",
        "sub": "admin",
        "scp": ["tableau:content:read"],
    }
    made = {name: value for name, value in {**sound, **claims}.items() if value is not None}
    headers = {"kid": APP.secret_id, "iss": APP.client_id} if header is None else header
    return jwt.encode(made, secret, algorithm="HS256", headers=headers)


@pytest.mark.parametrize("kind", ["token", "password", "app"])
def test_sessions_that_have_no_limit(start_sandbox: Callable[..., Sandbox], kind: str):
    """Prevents: parallel workers end each other's sessions where a real server keeps all."""
    sandbox = start_sandbox(one_session_per_token=kind != "token")
    auths = {"token": lambda: TOKEN, "password": lambda: ADMIN, "app": lambda: tsc.JWTAuth(token())}
    several = [signed_in(sandbox, auths[kind]()) for _ in range(2)]
    assert all(server.projects.get()[0] for server in several)


def test_sessions_expire(start_sandbox: Callable[..., Sandbox]):
    """Prevents: a long run is never tested against a session that ends under it."""
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    server = signed_in(start_sandbox(clock=lambda: now[0], session_minutes=10))
    now[0] += timedelta(minutes=9, seconds=59)
    assert server.projects.get()[0]
    now[0] += timedelta(seconds=1)
    with pytest.raises(tsc.NotSignedInError, match="401002"):
        server.projects.get()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"secret": "x" * 40}, "Signature"),
        ({"header": {"kid": "other", "iss": APP.client_id}}, "name no secret"),
        ({"header": {"kid": APP.secret_id}}, "name no secret"),
        ({"iss": "other"}, "issuer"),
        ({"aud": "tableau2"}, "[Aa]udience"),
        ({"sub": "nobody"}, "names no user"),
        ({"scp": []}, "list of scopes"),
        ({"scp": "tableau:content:read"}, "list of scopes"),
        ({"jti": None}, "jti"),
        ({"exp": None}, "exp"),
    ],
)
def test_unsound_tokens(shared_sandbox: Sandbox, changes: dict, reason: str):
    """Prevents: a token that real servers refuse lets its user in here."""
    with pytest.raises(tsc.FailedSignInError, match=rf"401001.*\n.*{reason}"):
        signed_in(shared_sandbox, tsc.JWTAuth(token(**changes)))


def test_unsigned_token(shared_sandbox: Sandbox):
    """Prevents: anyone gets in who leaves the signature away."""
    bare = jwt.encode({"sub": "admin"}, None, algorithm="none", headers={"kid": APP.secret_id})
    with pytest.raises(tsc.FailedSignInError, match="401001"):
        signed_in(shared_sandbox, tsc.JWTAuth(bare))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--connected-app", "client:key:short"), "the secret needs 32 bytes"),
        (("--user", "ann:secret:Admin"), "'Admin' is no site role; Tableau has ServerAdmin"),
        (("--user", "ann:secret:creator"), "'creator' is no site role; Tableau has ServerAdmin"),
    ],
)
def test_senseless_users_and_apps(arguments: tuple[str, ...], message: str, capsys):
    """Prevents: a user who may do nothing, or an app whose sign-ins fail, for want of a word."""
    with pytest.raises(SystemExit):
        main([*arguments])
    assert message in capsys.readouterr().err


def test_without_a_license(start_sandbox: Callable[..., Sandbox]):
    """Prevents: a user without a license works here, and cannot even sign in in production."""
    sandbox = start_sandbox(users=(UserSeed(name="una", password="una", site_role="Unlicensed"),))
    with pytest.raises(tsc.FailedSignInError, match="401001"):
        signed_in(sandbox, tsc.TableauAuth("una", "una"))
