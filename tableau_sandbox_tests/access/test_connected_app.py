import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import jwt
import pytest
import tableauserverclient as tsc

from tableau_pipeline.publishing import session as credentials
from tableau_pipeline.publishing import session as sign_in
from tableau_sandbox.command_line import main
from tableau_sandbox.options import ConnectedApp
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import signed_in

APP = Sandbox.connected_app


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


def test_pipeline_signs_in(start_sandbox: Callable[..., Sandbox]):
    # Prevents: a pipeline set up for a connected app cannot be tried, or publishes as another user.
    app = ConnectedApp(client_id="mine", secret_id="key", secret_value="s" * 40)
    sandbox = start_sandbox(connected_apps=(app,), sites=("second",))
    mine = credentials.ConnectedApp("admin", app.client_id, app.secret_id, app.secret_value)
    log = logging.getLogger("test")
    arguments = {"site": "second", "ca_bundle": None, "log": log}
    with sign_in.signed_in(sandbox.url, credentials=mine, **arguments) as opened:
        admin = signed_in(sandbox, tsc.TableauAuth(sandbox.user, sandbox.password))
        assert (opened.user_id, opened.tsc.is_signed_in()) == (admin.user_id, True)


def test_token_is_good_once(shared_sandbox: Sandbox):
    # Prevents: a client that sends a token twice works here and is refused in production.
    auth = tsc.JWTAuth(token())
    assert signed_in(shared_sandbox, auth).user_id
    with pytest.raises(tsc.FailedSignInError, match=r"401001.*\n.*used before"):
        signed_in(shared_sandbox, auth)


def test_sessions_of_an_app_are_not_limited(shared_sandbox: Sandbox):
    # Prevents: parallel workers of a connected app end each other's sessions as those of a PAT do.
    several = [signed_in(shared_sandbox, tsc.JWTAuth(token())) for _ in range(2)]
    assert all(server.projects.get()[0] for server in several)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"secret": "x" * 40}, "Signature"),
        ({"header": {"kid": "other", "iss": APP.client_id}}, "name no secret"),
        ({"header": {"kid": APP.secret_id}}, "name no secret"),
        ({"iss": "other"}, "issuer"),
        ({"aud": "tableau2"}, "[Aa]udience"),
        ({"exp": datetime.now(UTC) - timedelta(seconds=1)}, "expired"),
        # Made when the tests are collected, and used minutes later.
        ({"exp": datetime.now(UTC) + timedelta(days=1)}, "10 minutes"),
        ({"sub": "nobody"}, "names no user"),
        ({"scp": []}, "list of scopes"),
        ({"scp": "tableau:content:read"}, "list of scopes"),
        ({"jti": None}, "jti"),
        ({"exp": None}, "exp"),
    ],
)
def test_unsound_tokens(shared_sandbox: Sandbox, changes: dict, reason: str):
    # Prevents: a token that real servers refuse lets its user in here.
    with pytest.raises(tsc.FailedSignInError, match=rf"401001.*\n.*{reason}"):
        signed_in(shared_sandbox, tsc.JWTAuth(token(**changes)))


def test_unsigned_token(shared_sandbox: Sandbox):
    # Prevents: anyone gets in who leaves the signature away.
    bare = jwt.encode({"sub": "admin"}, None, algorithm="none", headers={"kid": APP.secret_id})
    with pytest.raises(tsc.FailedSignInError, match="401001"):
        signed_in(shared_sandbox, tsc.JWTAuth(bare))


def test_secret_that_is_too_short(capsys):
    # Prevents: every sign-in fails, far from the option that is at fault.
    with pytest.raises(SystemExit):
        main(["--connected-app", "client:key:short"])
    assert "the secret needs 32 bytes" in capsys.readouterr().err
