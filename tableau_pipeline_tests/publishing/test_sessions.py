"""Sessions: one for each token, renewed when they end, and with no more rights than needed."""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import jwt
import numpy as np
import pyarrow as pa
import pytest
import tableauserverclient as TSC

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing import about
from tableau_pipeline.publishing.errors import SignInError
from tableau_pipeline.publishing.session import (
    ConnectedApp,
    Password,
    PersonalAccessToken,
    only_session,
)
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import (
    LOG,
    SignIn,
    finished,
    hyper_file,
    published,
    send,
)
from tableau_pipeline_tests.publishing.test_jobs import LONG_AGO, clear
from tableau_pipeline_tests.publishing.test_publish import CLEAR, DATA, INSERT, fresh, rows
from tableau_sandbox.faults import ExpireSessions, HoldJobs
from tableau_sandbox.testing import Sandbox

URL = "https://tableau.example.com"


@pytest.fixture(autouse=True)
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of this test, and of the processes that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def hold(url: str, entered: threading.Event, leave: threading.Event) -> None:
    with only_session(url, token="token", timeout=10, log=LOG):
        entered.set()
        leave.wait(10)


@pytest.fixture
def held() -> Generator[threading.Event]:
    """The token is held by another thread, until this is set."""
    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold, args=(URL, entered, leave))
    thread.start()
    assert entered.wait(10)
    yield leave
    leave.set()
    thread.join()


def test_waiting_is_told_once(held: threading.Event, caplog: pytest.LogCaptureFixture):
    # Prevents: a refresh that waits for its turn looks like one that hangs.
    caplog.set_level(logging.INFO, LOG.name)
    threading.Timer(1.5, held.set).start()
    with only_session(URL, token="token", timeout=10, log=LOG):
        pass
    (message,) = [record.getMessage() for record in caplog.records if record.name == LOG.name]
    for part in (
        'Waiting for token "token"',
        URL,
        f"process {os.getpid()} on this host",
        "session",
    ):
        assert part in message


HOLD = """
import logging, sys, time
from tableau_pipeline.publishing.session import only_session

with only_session(sys.argv[1], token="token", timeout=0, log=logging.getLogger()):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_paused_process_is_named(caplog: pytest.LogCaptureFixture):
    # Prevents: two hours of waiting for a process that was stopped, and no word of which.
    caplog.set_level(logging.INFO, LOG.name)
    command = [sys.executable, "-c", HOLD, URL]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        process.send_signal(signal.SIGSTOP)
        try:
            expected = pytest.raises(RefreshError, match=f"process {process.pid}.*paused")
            with expected, only_session(URL, token="token", timeout=1.5, log=LOG):
                pass
        finally:
            process.kill()
    assert f"process {process.pid} on this host, which is paused" in caplog.text
    assert f"kill -CONT {process.pid}" in caplog.text


@pytest.mark.usefixtures("held")
def test_waiting_ends(caplog: pytest.LogCaptureFixture):
    # Prevents: a session that hangs takes all later refreshes along, and nobody knows why.
    expected = pytest.raises(RefreshError, match=r'"token".*for 1 s.*Run again')
    with expected as caught, only_session(URL, token="token", timeout=1, log=LOG):
        pass
    assert not isinstance(caught.value, RefusedError), "another try helps"


@pytest.mark.usefixtures("held")
def test_other_tokens_and_servers_do_not_wait(caplog: pytest.LogCaptureFixture):
    # Prevents: a token of its own does not help.
    caplog.set_level(logging.INFO, LOG.name)
    with (
        only_session(URL, token="other", timeout=0, log=LOG),
        only_session("https://other.example.com", token="token", timeout=0, log=LOG),
    ):
        assert LOG.name not in {record.name for record in caplog.records}


def test_nested_sessions(sandbox: Sandbox, sign_in: SignIn):
    # Prevents: a thread waits for itself, for two hours.
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
    # Prevents: a wrong secret locks the token for all.
    for _ in range(2):
        wrong = PersonalAccessToken(sandbox.token_name, "wrong")
        with pytest.raises(RefusedError, match="401001"), sign_in(wrong):
            pass


def test_sites_share_a_token(sandbox: Sandbox, sign_in: SignIn):
    # Prevents: a session on one site ends that on another, which the token carries as little.
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


Call = Callable[[TableauSite, RemoteDatasource, Path], object]
CALLS: dict[str, Call] = {
    "project": lambda site, sales, file: site.project(f"{sales.name}/Deep", create=True),
    "find_by_luid": lambda site, sales, file: site.find_by_luid(sales.luid),
    "publish": lambda site, sales, file: send(
        site, file, name=sales.name, project_id=sales.project_id, mode=PublishMode.REPLACE
    ),
    "update": lambda site, sales, file: site.update(
        sales.luid, batch=CLEAR, upload=None, request_id=fresh()
    ),
    "jobs": lambda site, sales, file: site.jobs(name=sales.name, since=LONG_AGO),
}


@pytest.mark.few_variants(4)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_session_that_has_ended(
    tableau: TableauSite,
    sandbox: Sandbox,
    sales: RemoteDatasource,
    small: Path,
    tmp_path: Path,
    call: Call,
    caplog: pytest.LogCaptureFixture,
):
    # Prevents: a refresh of hours fails because Tableau ends sessions after four, or two.
    file = tmp_path / "file.hyper"
    file.write_bytes(small.read_bytes())
    with sandbox.armed(ExpireSessions()) as fault:
        assert call(tableau, sales, file)
    assert fault.fired == 1
    assert "signing in again" in str(caplog.messages)


def test_session_that_ends_while_a_job_runs(
    tableau: TableauSite, sandbox: Sandbox, sales: RemoteDatasource
):
    # Prevents: a long job is lost sight of, or cannot be given up.
    with sandbox.armed(HoldJobs()):
        job = tableau.update(sales.luid, batch=CLEAR, upload=None, request_id=fresh())
        assert job
        with sandbox.armed(ExpireSessions()):
            status = tableau.job(job)
        with sandbox.armed(ExpireSessions()):
            assert tableau.cancel(job)
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
def test_session_that_ends_during_an_upload(
    tableau: TableauSite,
    sandbox: Sandbox,
    sales: RemoteDatasource,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    when: ExpireSessions,
):
    # Prevents: a payload arrives in part, or twice, when its upload outlasts the session.
    monkeypatch.setenv("TSC_CHUNK_SIZE_MB", "1")
    noise = np.random.default_rng(0).integers(0, 2**62, 400_000)
    file = hyper_file(tmp_path, pa.table({"number": noise}))
    assert file.stat().st_size > 2 * 2**20
    with sandbox.armed(when) as fault:
        job = tableau.update(
            sales.luid, batch=INSERT, upload=tableau.upload(file), request_id=fresh()
        )
    assert job
    assert finished(tableau, job) == (Outcome.DONE, "")
    assert rows(sandbox, sales.luid) == 5 + 400_000
    assert fault.fired == 1


def test_sessions_that_end_again_and_again(
    tableau: TableauSite, sandbox: Sandbox, sales: RemoteDatasource
):
    # Prevents: two deployments with one token throw each other out for ever, and nobody is told.
    fault = ExpireSessions(method="GET", path="sites/*/datasources/*", times=None)
    with sandbox.armed(fault) as ending, pytest.raises(RefreshError) as caught:
        tableau.find_by_luid(sales.luid)
    assert ending.fired == 2
    for part in ("401002", "same token", "run again", "a token of its own"):
        assert part in str(caught.value)
    assert not isinstance(caught.value, RefusedError), "another try helps"


def test_second_sign_in_with_a_token_ends_the_first(
    sandbox: Sandbox, sign_in: SignIn, caplog: pytest.LogCaptureFixture
):
    # Prevents: somebody who tries out the same token fails the refresh of the night.
    caplog.set_level(logging.WARNING)
    token = PersonalAccessToken(sandbox.token_name, sandbox.token_secret)
    with sign_in(token) as ours:
        theirs = TSC.Server(sandbox.url, use_server_version=True)
        theirs.auth.sign_in(token.for_site(""))
        assert ours.project("Default", create=False)
    assert "give each deployment a token of its own" in str(caplog.messages)


def test_connected_app_signs_in_again(sandbox: Sandbox, sign_in: SignIn):
    # Prevents: the second sign-in shows the token of the first, which Tableau takes only once.
    app = sandbox.connected_app
    credentials = ConnectedApp(sandbox.user, app.client_id, app.secret_id, app.secret_value)
    with sign_in(credentials) as tableau, sandbox.armed(ExpireSessions()):
        assert tableau.find_project("Default")


SECRET = "a-secret-of-at-least-thirty-two-bytes"


@pytest.fixture
def app(sandbox: Sandbox) -> ConnectedApp:
    signing = sandbox.connected_app
    return ConnectedApp(sandbox.user, signing.client_id, signing.secret_id, signing.secret_value)


def test_every_call_of_a_refresh(
    sign_in: SignIn, app: ConnectedApp, sandbox: Sandbox, small: Path, tmp_path: Path
):
    """Prevents: a refresh of a connected app stops at a call that its token has no scope for."""
    with sign_in(app) as site:
        project = site.project(f"App {uuid4().hex[:8]}", create=True)
        item = published(site, small, name="By an app", project_id=project)
        site.tag(item.luid, ["x"])
        site.untag(item.luid, ["x"])
        moved = site.move(item.luid, name="Moved", project_id=project)
        assert (moved.name, moved.tags) == ("Moved", set())
        assert site.find_by_name("Moved", project_id=project) == moved
        assert site.download(item.luid, tmp_path).suffix == ".tdsx"
        assert site.metadata(item.luid)
        site.publish(
            site.upload(small),
            name="Moved",
            project_id=project,
            mode=PublishMode.OVERWRITE,
        )
        sandbox.wait_until_idle()
        assert site.jobs(name="Moved", since=LONG_AGO)
        cancels_a_job(site, sandbox, item.luid)


def test_people_by_an_app(
    sign_in: SignIn, app: ConnectedApp, sales: RemoteDatasource, tableau: TableauSite
):
    """Prevents: permissions work with a token, and are forbidden to a connected app."""
    with sign_in(app) as site, pytest.raises(SignInError, match="401002"):
        about.grantee(site, "group", "All Users")
    with sign_in(replace(app, people=True)) as site:
        group = str(about.grantee(site, "group", "All Users"))
        rule = {("group", group, "Read"): "Allow"}
        assert about.grantee(site, "user", "admin") == tableau.user_id
        about.set_permissions(site, sales.luid, {}, remove=rule)
        about.set_permissions(site, sales.luid, rule, remove={})
        about.describe(site, sales.luid, description="By an app")
        assert about.permissions(site, sales.luid).items() >= rule.items()


def cancels_a_job(site: TableauSite, sandbox: Sandbox, luid: str) -> None:
    with sandbox.armed(HoldJobs()):
        job = clear(site, luid)
        assert site.cancel(job)
    status = site.job(job)
    assert status is not None
    assert status.outcome is Outcome.CANCELLED


def test_token_may_do_what_a_refresh_does_and_no_more():
    """Prevents: a refresh is forbidden half-way, or a stolen token may do anything."""
    token = (
        ConnectedApp("ann", "client-id", "secret-id", SECRET).for_site("sales").credentials["jwt"]
    )
    scopes = jwt.decode(token, SECRET, algorithms=["HS256"], audience="tableau")["scp"]
    assert {
        "tableau:content:read",
        "tableau:datasources:create",
        "tableau:file_uploads:create",
        "tableau:jobs:*",
        "tableau:projects:create",
    } <= set(scopes)
    forbidden = ("tableau:*", "users", "permissions", "datasources:*", "projects:*", "delete")
    assert not [each for each in scopes if any(part in each for part in forbidden)]
