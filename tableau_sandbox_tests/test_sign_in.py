"""Sessions and credentials that the contract cannot check on a real server."""

import socket
import ssl
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import jwt
import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.command_line import main
from tableau_sandbox.control import Control
from tableau_sandbox.options import Options, UserSeed
from tableau_sandbox.services import open_services
from tableau_sandbox.store.accounts import NameTakenError
from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import ADMIN, TIMEOUT, publish, signed_in
from tableau_sandbox_tests.test_service import started_sandbox
from tableau_sandbox_tests.test_updates import publish_job

APP = Sandbox.connected_app
TOKEN = tsc.PersonalAccessTokenAuth(Sandbox.token_name, Sandbox.token_secret)


def token(
    *,
    header: dict | None = None,
    secret: str | None = APP.secret_value,
    algorithm: str = "HS256",
    **claims: object,
) -> str:
    """Return a valid token with some changes; a claim that is None is left out."""
    sound = {"iss": APP.client_id, "aud": "tableau", "sub": "admin", "jti": str(uuid4())}
    sound |= {"exp": datetime.now(UTC) + timedelta(minutes=9), "scp": ["tableau:content:read"]}
    made = {name: value for name, value in {**sound, **claims}.items() if value is not None}
    headers = {"kid": APP.secret_id, "iss": APP.client_id} if header is None else header
    return jwt.encode(made, secret, algorithm=algorithm, headers=headers)


@pytest.mark.parametrize("kind", ["token", "password", "app"])
def test_sessions_that_have_no_limit(start_sandbox: Callable[..., Sandbox], kind: str):
    """Prevents: parallel workers end each other's sessions, which a real server would keep."""
    sandbox = start_sandbox(one_session_per_token=kind != "token")
    auths = {"token": lambda: TOKEN, "password": lambda: ADMIN, "app": lambda: tsc.JWTAuth(token())}
    several = [signed_in(sandbox, auths[kind]()) for _ in range(2)]
    assert all(server.projects.get()[0] for server in several)


def test_sessions_expire(new_server: NewServer):
    """Prevents: no test shows how a long run handles a session that expires."""
    sandbox, server = new_server(clock=lambda: datetime(2026, 1, 1, tzinfo=UTC), session_minutes=10)
    sandbox.advance(599)
    assert server.projects.get()[0]
    sandbox.advance(1)
    with pytest.raises(tsc.NotSignedInError, match="401002"):
        server.projects.get()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"secret": "x" * 40}, "Signature"),
        ({"secret": None, "algorithm": "none"}, ""),
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
    """Prevents: the sandbox accepts a token that real servers refuse."""
    with pytest.raises(tsc.FailedSignInError, match=rf"401001.*\n.*{reason}"):
        signed_in(shared_sandbox, tsc.JWTAuth(token(**changes)))


def test_without_a_license(start_sandbox: Callable[..., Sandbox]):
    """Prevents: a user without a license signs in here, but not to a real server."""
    sandbox = start_sandbox(users=(UserSeed(name="una", password="una", site_role="Unlicensed"),))
    with pytest.raises(tsc.FailedSignInError, match="401001"):
        signed_in(sandbox, tsc.TableauAuth("una", "una"))


OWN = {
    "TABLEAU_SANDBOX_USER": "boss",
    "TABLEAU_SANDBOX_PASSWORD": "p a: ss",
    "TABLEAU_SANDBOX_TOKEN_SECRET": "own-secret",
}
BOSS = UserSeed(
    name="boss",
    password="p a: ss",
    site_role="ServerAdministrator",
    tokens=(("pipeline", "own-secret"),),
)
BOSS_AUTH = tsc.TableauAuth("boss", "p a: ss")
BOSS_TOKEN = tsc.PersonalAccessTokenAuth("pipeline", "own-secret")
KNOWN = (ADMIN, tsc.TableauAuth("boss", "admin"), TOKEN)


@pytest.mark.parametrize(
    ("changed", "options", "reason"),
    [
        ({"TABLEAU_SANDBOX_USER": "Admin"}, (), "by TABLEAU_SANDBOX_USER"),
        ({"TABLEAU_SANDBOX_PASSWORD": "admin"}, (), "by TABLEAU_SANDBOX_PASSWORD"),
        ({"TABLEAU_SANDBOX_PASSWORD": ""}, (), "by TABLEAU_SANDBOX_PASSWORD"),
        ({"TABLEAU_SANDBOX_TOKEN_SECRET": ""}, (), "by TABLEAU_SANDBOX_TOKEN_SECRET"),
        (dict.fromkeys(OWN, ""), (), f"by {', '.join(OWN)}"),
        ({}, ("--user", "admin:admin:ServerAdministrator"), "by --user"),
    ],
)
def test_defaults_stay_at_home(
    changed: dict[str, str],
    options: tuple[str, ...],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """Prevents: all users of a network can sign in with the documented password."""
    for name, value in {**OWN, **changed}.items():
        monkeypatch.setenv(name, value)
    data_dir = str(tmp_path / "data")
    assert main(["--host", "0.0.0.0", "--port", "0", "--data-dir", data_dir, *options]) == 1
    output = capsys.readouterr().err
    assert output.endswith(f"{reason}\n")
    assert output.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_open_to_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: an open sandbox accepts documented credentials, or prints the chosen secrets."""
    for name, value in OWN.items():
        monkeypatch.setenv(name, value)
    with started_sandbox(tmp_path, "--quiet", "--host", "0.0.0.0") as (process, url):
        url = url.replace("0.0.0.0", "127.0.0.1")
        for auth in (*KNOWN, tsc.JWTAuth(token(sub="boss"))):
            with pytest.raises(tsc.FailedSignInError):
                signed_in(url, auth)
        for auth in (BOSS_AUTH, BOSS_TOKEN):
            server = signed_in(url, auth)
            assert server.users.get_by_id(server.user_id).name == "boss"
        process.terminate()
        output, log = process.stdout.read(), process.stderr.read()
    assert "boss / $TABLEAU_SANDBOX_PASSWORD" in output
    for secret in ("connected app", "p a: ss", "own-secret", "app-secret"):
        assert secret not in output
    assert log == ""


def test_data_that_had_the_defaults(tmp_path: Path, one_row: Path):
    """Prevents: data of a developer's machine bring the documented password to a network."""
    with running_sandbox(tmp_path) as sandbox:
        admin = signed_in(sandbox)
        item = publish(admin, one_row)
    with running_sandbox(tmp_path, admin=BOSS) as sandbox:
        for auth in KNOWN:
            with pytest.raises(tsc.FailedSignInError):
                signed_in(sandbox, auth)
        boss = signed_in(sandbox, BOSS_AUTH)
        # The administrator is the same user, with another name.
        assert boss.datasources.get_by_id(item.id).owner_id == boss.user_id == admin.user_id
        assert signed_in(sandbox, BOSS_TOKEN).user_id == boss.user_id
        admin._server_address = sandbox.url
        with pytest.raises(tsc.NotSignedInError):
            admin.datasources.get()


def test_names_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    """Prevents: an administrator takes over the content of another user with the same name."""
    other = UserSeed(name="admin", password="other", site_role="Viewer")
    with running_sandbox(tmp_path, admin=BOSS, users=(other,)) as sandbox:
        admin = signed_in(sandbox, tsc.TableauAuth("admin", "other"))
        assert admin.user_id != signed_in(sandbox, BOSS_AUTH).user_id
    assert main(["--port", "0", "--data-dir", str(tmp_path)]) == 1
    expected = "tableau-sandbox: Another user of the data directory is called 'admin'.\n"
    assert capsys.readouterr().err == expected


def test_names_in_another_case(tmp_path: Path):
    """Prevents: names that differ only in case cause a traceback, or give a user more rights."""
    first = UserSeed(name="Ann", password="first", tokens=(("one", "secret"),))
    with running_sandbox(tmp_path, users=(first,)) as sandbox:
        ann = signed_in(sandbox, tsc.TableauAuth("ann", "first"))
    again = replace(first, name="ANN", tokens=(("two", "secret"),))
    with running_sandbox(tmp_path, users=(again,)) as sandbox:
        found = signed_in(sandbox, tsc.PersonalAccessTokenAuth("two", "secret"))
        assert found.user_id == ann.user_id
    for users in ((first, again), (replace(first, name="Admin"),)):
        options = Options(data_dir=tmp_path / "other", users=users)
        with (
            pytest.raises(NameTakenError, match="Several users are called"),
            open_services(options, Control()),
        ):
            pass


def test_files_are_private(sandbox: Sandbox, server: tsc.Server, tmp_path: Path, one_row: Path):
    """Prevents: other users of the machine read published files, uploads or keys."""
    publish(server, one_row)
    server.fileuploads.upload(str(one_row))
    with sandbox.held_jobs():
        publish_job(server, one_row, name="Queued")
        found = [sandbox.data_dir, *sandbox.data_dir.rglob("*")]
        for path in found:
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path
    assert {path.parent.name for path in found} >= {"content", "uploads", "incoming"}


def test_tls(start_sandbox: Callable[..., Sandbox], one_row: Path):
    """Prevents: clients that insist on https fail, or lose their trust at a restart."""
    sandbox = start_sandbox(tls=True)
    options = {"verify": str(sandbox.certificate)}
    server = tsc.Server(sandbox.url, use_server_version=True, http_options=options)
    server.auth.sign_in(ADMIN)
    assert str(publish(server, one_row).webpage_url).startswith(f"{sandbox.url}/")
    trusted = sandbox.certificate.read_bytes()
    sandbox.restart()
    assert sandbox.certificate.read_bytes() == trusted
    assert len(server.datasources.get()[0]) == 1
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(sandbox.url, timeout=TIMEOUT)
    context = ssl.create_default_context(cafile=sandbox.certificate)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    port = int(sandbox.url.rpartition(":")[2])
    for host in ("127.0.0.1", "localhost"):
        with context.wrap_socket(socket.create_connection((host, port)), server_hostname=host):
            pass
    assert sandbox.certificate.with_name("server.pem").stat().st_mode & 0o077 == 0
