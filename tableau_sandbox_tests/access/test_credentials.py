"""A sandbox that other machines can reach is not open to whoever has read its documentation."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox import command_line as cli
from tableau_sandbox.control import Control
from tableau_sandbox.options import Options, UserSeed
from tableau_sandbox.services import open_services
from tableau_sandbox.store.accounts import NameTakenError
from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.access.test_sign_in import token
from tableau_sandbox_tests.samples import publish, signed_in
from tableau_sandbox_tests.service.command import started_sandbox

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
ADMIN_AUTH = tsc.TableauAuth("admin", "admin")
KNOWN_TOKEN = tsc.PersonalAccessTokenAuth("pipeline", "pipeline-secret")
KNOWN = (ADMIN_AUTH, tsc.TableauAuth("boss", "admin"), KNOWN_TOKEN)


@contextmanager
def environment(patch: pytest.MonkeyPatch, **variables: str) -> Iterator[None]:
    with patch.context() as context:
        for name, value in variables.items():
            context.setenv(name, value)
        yield


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
    """Prevents: everybody in a network signs in with the documented password."""
    with environment(monkeypatch, **{**OWN, **changed}):
        data_dir = str(tmp_path / "data")
        assert cli.main(["--host", "0.0.0.0", "--port", "0", "--data-dir", data_dir, *options]) == 1
    output = capsys.readouterr().err
    assert output.endswith(f"{reason}\n")
    assert output.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_open_to_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: it takes what is documented besides what was chosen, or says what was chosen."""
    with (
        environment(monkeypatch, **OWN),
        started_sandbox(tmp_path, "--host", "0.0.0.0") as (process, url),
    ):
        server = tsc.Server(url.replace("0.0.0.0", "127.0.0.1"), use_server_version=True)
        for auth in (*KNOWN, tsc.JWTAuth(token(sub="boss"))):
            with pytest.raises(tsc.FailedSignInError):
                server.auth.sign_in(auth)
        for auth in (BOSS_AUTH, BOSS_TOKEN):
            server.auth.sign_in(auth)
            assert server.users.get_by_id(server.user_id).name == "boss"
        process.terminate()
        assert process.stdout is not None
        output = process.stdout.read()
        assert "boss / $TABLEAU_SANDBOX_PASSWORD" in output
        assert "connected app" not in output
        for secret in ("p a: ss", "own-secret", "app-secret"):
            assert secret not in output


def test_data_that_had_the_defaults(tmp_path: Path, one_row: Path):
    """Prevents: data from a developer's machine bring the documented password with them."""
    with running_sandbox(tmp_path) as sandbox:
        admin = signed_in(sandbox)
        item = publish(admin, one_row)
    with running_sandbox(tmp_path, admin=BOSS) as sandbox:
        for auth in KNOWN:
            with pytest.raises(tsc.FailedSignInError):
                signed_in(sandbox, auth)
        boss = signed_in(sandbox, BOSS_AUTH)
        # It is the same user, with another name.
        assert boss.datasources.get_by_id(item.id).owner_id == boss.user_id == admin.user_id
        assert signed_in(sandbox, BOSS_TOKEN).user_id == boss.user_id
        admin._server_address = sandbox.url
        with pytest.raises(tsc.NotSignedInError):
            admin.datasources.get()


def test_names_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    """Prevents: the administrator's name was someone else's, and they share content, or crash."""
    other = UserSeed(name="admin", password="other", site_role="Viewer")
    with running_sandbox(tmp_path, admin=BOSS, users=(other,)) as sandbox:
        admin = signed_in(sandbox, tsc.TableauAuth("admin", "other"))
        assert admin.user_id != signed_in(sandbox, BOSS_AUTH).user_id
    assert cli.main(["--port", "0", "--data-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        "tableau-sandbox: Another user of the data directory is called 'admin'.\n"
    )


def test_names_in_another_case(tmp_path: Path):
    """Prevents: a traceback about a foreign key, or a user with the rights of the administrator."""
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
    """Prevents: other users of the machine read what was published, uploaded or signed."""
    publish(server, one_row)
    server.fileuploads.upload(str(one_row))
    with sandbox.held_jobs():
        item = tsc.DatasourceItem(server.projects.get()[0][0].id, name="Queued")
        server.datasources.publish(item, one_row, "CreateNew", as_job=True)
        found = [sandbox.data_dir, *sandbox.data_dir.rglob("*")]
        modes = {path: stat.S_IMODE(path.stat().st_mode) for path in found}
    assert {path.parent.name for path in found} >= {"content", "uploads", "incoming"}
    for path, mode in modes.items():
        assert mode == (0o700 if path.is_dir() else 0o600), path
