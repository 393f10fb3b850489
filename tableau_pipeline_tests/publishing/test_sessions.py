"""Sessions: one at a time for each token, renewed when they end, and with minimal rights."""

import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import jwt
import pytest
import tableauserverclient as TSC

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.drift import RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing import properties
from tableau_pipeline.publishing.errors import SignInError
from tableau_pipeline.publishing.session import (
    ConnectedApp,
    Password,
    PersonalAccessToken,
    only_session,
)
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import (
    DATA,
    INSERT,
    LOG,
    Shop,
    SignIn,
    finished,
    fresh,
    published,
)
from tableau_pipeline_tests.publishing.test_calls import LONG_AGO
from tableau_sandbox.faults import ExpireSessions, HoldJobs
from tableau_sandbox.testing import Sandbox

URL = "https://tableau.example.com"


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of the test and of its child processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def held(temp: Path) -> Generator[threading.Event]:
    """Another thread holds the token until the test sets this event."""
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with only_session(URL, token="token", timeout=10, log=LOG):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(10)
    yield leave
    leave.set()
    thread.join()


def test_waiting_is_told_once(held: threading.Event, caplog: pytest.LogCaptureFixture):
    # Prevents: a refresh that waits for its turn seems to hang.
    caplog.set_level(logging.INFO, LOG.name)
    threading.Timer(1.5, held.set).start()
    with only_session(URL, token="token", timeout=10, log=LOG):
        pass
    (message,) = [record.getMessage() for record in caplog.records if record.name == LOG.name]
    for part in ('token "token"', URL, f"process {os.getpid()} on this host", "kill -CONT"):
        assert part in message


HOLD = """
import logging, sys, time
from tableau_pipeline.publishing.session import only_session

with only_session(sys.argv[1], token="token", timeout=0, log=logging.getLogger()):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("temp")
def test_other_processes_wait():
    # Prevents: a process ends another's session, or waits and does not name the other process.
    command = [sys.executable, "-c", HOLD, URL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        expected = pytest.raises(RefreshError, match=f"process {process.pid} on this host")
        with expected, only_session(URL, token="token", timeout=0.5, log=LOG):
            pass
        process.kill()


@pytest.mark.usefixtures("held")
def test_waiting_ends():
    # Prevents: a hanging session blocks all later refreshes, or blocks other tokens as well.
    expected = pytest.raises(RefreshError, match=r'"token".*for 1 s.*Run again')
    with expected as caught, only_session(URL, token="token", timeout=1, log=LOG):
        pass
    assert not isinstance(caught.value, RefusedError), "another try helps"
    with (
        only_session(URL, token="other", timeout=0, log=LOG),
        only_session("https://other.example.com", token="token", timeout=0, log=LOG),
    ):
        pass


def test_nested_sessions(sandbox: Sandbox, sign_in: SignIn):
    # Prevents: a thread waits for hours for a session that it holds itself.
    token = PersonalAccessToken(sandbox.token_name, sandbox.token_secret)
    with sign_in(token) as site:
        with pytest.raises(RefusedError, match=r'"pipeline".*in this thread already'):
            sign_in(token).__enter__()
        assert site.find_project("Default")
        with sign_in(Password(sandbox.user, sandbox.password)) as other:
            assert other.find_project("Default")
    with sign_in(token) as site:
        assert site.find_project("Default")


def test_token_is_free_after_a_failed_sign_in(sandbox: Sandbox, sign_in: SignIn):
    # Prevents: a failed sign-in leaves the token locked.
    for _ in range(2):
        wrong = PersonalAccessToken(sandbox.token_name, "wrong")
        with pytest.raises(RefusedError, match="401001"), sign_in(wrong):
            pass


def test_sites_share_a_token(sandbox: Sandbox, sign_in: SignIn):
    # Prevents: a sign-in to one site ends the session that the token has on another site.
    token = PersonalAccessToken(sandbox.token_name, sandbox.token_secret)
    sites: list[str] = []

    def other_site() -> None:
        with sign_in(token, site="second") as site:
            sites.append(site.site)

    with sign_in(token) as first:
        thread = threading.Thread(target=other_site)
        thread.start()
        thread.join(0.5)
        assert sites == []
        assert first.find_project("Default")
    thread.join(10)
    assert sites == ["second"]


def test_folder_is_private(temp: Path):
    # Prevents: other users of the host see or hold our locks.
    with only_session(URL, token="token", timeout=0, log=LOG):
        pass
    folder = temp / f"tableau_pipeline-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    (lock,) = folder.rglob("*.lock")
    assert lock.stem != "token"


Call = Callable[[Shop], object]
CALLS: dict[str, Call] = {
    "project": lambda shop: shop.site.project(f"{shop.sales.name}/Deep", create=True),
    "find_by_luid": lambda shop: shop.found(),
    "publish": lambda shop: shop.publish(shop.small),
    "update": lambda shop: shop.update(),
    "jobs": lambda shop: shop.site.jobs(name=shop.sales.name, since=LONG_AGO),
}


@pytest.mark.few_variants(4)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_session_that_has_ended(shop: Shop, call: Call, caplog: pytest.LogCaptureFixture):
    # Prevents: a long refresh fails because Tableau ends its session after some hours.
    with shop.sandbox.armed(ExpireSessions()) as fault:
        assert call(shop)
    assert fault.fired == 1
    assert "signing in again" in str(caplog.messages)


def test_session_that_ends_while_a_job_runs(shop: Shop):
    # Prevents: after its session has ended, the pipeline cannot watch or cancel a job.
    with shop.sandbox.armed(HoldJobs()):
        job = shop.update()
        with shop.sandbox.armed(ExpireSessions()):
            status = shop.site.job(job)
        with shop.sandbox.armed(ExpireSessions()):
            assert shop.site.cancel(job)
    assert status
    assert status.outcome is None


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    "when",
    [
        ExpireSessions(method="PUT", path="sites/*/fileUploads/*", nth=2),
        ExpireSessions(method="PATCH", path=DATA),
    ],
    ids=["between two blocks", "after the last block"],
)
def test_session_that_ends_during_an_upload(shop: Shop, large: Path, when: ExpireSessions):
    # Prevents: a payload arrives in part, or twice, because the session ends during its upload.
    with shop.sandbox.armed(when) as fault:
        job = shop.update(INSERT, upload=shop.site.upload(large))
    assert finished(shop.site, job) == (Outcome.DONE, "")
    assert shop.rows() == 5 + 400_000
    assert fault.fired == 1


def test_sessions_that_end_again_and_again(shop: Shop):
    # Prevents: two deployments with the same token silently end each other's sessions for ever.
    fault = ExpireSessions(method="GET", path="sites/*/datasources/*", times=None)
    with shop.sandbox.armed(fault) as ending, pytest.raises(RefreshError) as caught:
        shop.found()
    assert ending.fired == 2
    for part in ("401002", "same token", "run again", "a token of its own"):
        assert part in str(caught.value)
    assert not isinstance(caught.value, RefusedError), "another try helps"


def test_second_sign_in_with_a_token_ends_the_first(
    sandbox: Sandbox, sign_in: SignIn, caplog: pytest.LogCaptureFixture
):
    # Prevents: another sign-in with the same token makes a refresh fail.
    caplog.set_level(logging.WARNING)
    token = PersonalAccessToken(sandbox.token_name, sandbox.token_secret)
    with sign_in(token) as ours:
        theirs = TSC.Server(sandbox.url, use_server_version=True)
        theirs.auth.sign_in(token.for_site(""))
        assert ours.project("Default", create=False)
    assert "give each deployment a token of its own" in str(caplog.messages)


def test_connected_app_signs_in_again(sandbox: Sandbox, sign_in: SignIn, app: ConnectedApp):
    # Prevents: a second sign-in reuses a JSON web token, which Tableau accepts only once.
    with sign_in(app) as tableau, sandbox.armed(ExpireSessions()):
        assert tableau.find_project("Default")


SECRET = "a-secret-of-at-least-thirty-two-bytes"


@pytest.fixture
def app(sandbox: Sandbox) -> ConnectedApp:
    signing = sandbox.connected_app
    return ConnectedApp(sandbox.user, signing.client_id, signing.secret_id, signing.secret_value)


def test_every_call_of_a_refresh(
    sign_in: SignIn, app: ConnectedApp, sandbox: Sandbox, small: Path, tmp_path: Path
):
    """Prevents: a connected app's refresh fails at a call for which the token lacks a scope."""
    with sign_in(app) as site:
        project = site.project(f"App {fresh()[:8]}", create=True)
        item = published(site, small, name="By an app", project_id=project)
        site.tag(item.luid, ["x"])
        site.untag(item.luid, ["x"])
        site.move(item.luid, name="Moved", project_id=project)
        moved = site.find_by_luid(item.luid)
        assert moved
        assert (moved.name, moved.tags) == ("Moved", set())
        assert site.find_by_name("Moved", project_id=project) == moved
        assert site.download(item.luid, tmp_path).suffix == ".tdsx"
        assert site.metadata(item.luid)
        shop = Shop(site, sandbox, moved, small)
        shop.publish(small)
        assert site.jobs(name="Moved", since=LONG_AGO)
        with sandbox.armed(HoldJobs()):
            job = shop.update()
            assert site.cancel(job)
        assert finished(site, job)[0] is Outcome.CANCELLED


def test_people_by_an_app(
    sign_in: SignIn, app: ConnectedApp, sales: RemoteDatasource, tableau: TableauSite
):
    """Prevents: a connected app cannot set permissions although its option `people` allows this."""
    with sign_in(app) as site, pytest.raises(SignInError, match="401002"):
        properties.find_named(site, "group", "All Users")
    with sign_in(replace(app, people=True)) as site:
        group = str(properties.find_named(site, "group", "All Users"))
        rule = {(group, "Read"): "Allow"}
        assert properties.find_named(site, "user", "admin") == tableau.user_id
        properties.set_permissions(site, sales.luid, {}, remove=rule)
        properties.set_permissions(site, sales.luid, rule, remove={})
        properties.set_properties(site, sales.luid, description="By an app")
        assert properties.permissions(site, sales.luid).items() >= rule.items()


def test_token_may_do_no_more_than_a_refresh_does():
    """Prevents: a stolen token allows more than a refresh does."""
    app = ConnectedApp("ann", "client-id", "secret-id", SECRET)
    token = app.for_site("sales").credentials["jwt"]
    scopes = jwt.decode(token, SECRET, algorithms=["HS256"], audience="tableau")["scp"]
    forbidden = ("tableau:*", "users", "permissions", "datasources:*", "projects:*", "delete")
    assert scopes
    assert not [each for each in scopes if any(part in each for part in forbidden)]
