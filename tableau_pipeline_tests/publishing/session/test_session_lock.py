import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.session import Password, PersonalAccessToken, only_session
from tableau_pipeline_tests.publishing.conftest import LOG, SignIn
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
