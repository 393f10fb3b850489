"""The command, the fixture and the clock of the sandbox, and its restarts."""

import re
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.command_line import main
from tableau_sandbox.faults import Refuse
from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.samples import TIMEOUT, call, publish, rows_on_server, signed_in
from tableau_sandbox_tests.test_updates import CLEAR, publish_job, update


@contextmanager
def started_sandbox(
    data_dir: Path, *arguments: str
) -> Generator[tuple[subprocess.Popen[str], str], None, None]:
    """Start `tableau-sandbox` in a separate process; yield the process and its address.

    The process is killed at the end of the block.
    """
    command = [sys.executable, "-m", "tableau_sandbox", "--port", "0", "--data-dir", str(data_dir)]
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            (url,) = re.findall(r"https?://\S+", process.stdout.readline())
            yield process, url
        finally:
            process.kill()


@pytest.mark.slow
def test_requests_are_logged_without_secrets(tmp_path: Path):
    """Prevents: the log does not show the requests of a client, or shows secrets."""
    with started_sandbox(tmp_path) as (process, url):
        server = signed_in(url, tsc.PersonalAccessTokenAuth("pipeline", "pipeline-secret"))
        requests.get(f"{url}/a%0Ab?token=t0ken", timeout=TIMEOUT)
        process.terminate()
        log = process.communicate(timeout=TIMEOUT)[1]
    assert re.search(r"^\d\d:\d\d:\d\d POST /api/\S+/auth/signin 200 \d+ ms$", log, re.M)
    assert re.search(r" GET /a%0Ab 404 \d+ ms$", log, re.M)
    for secret in ("pipeline-secret", "t0ken", str(server.auth_token)):
        assert secret not in log


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--port 99999", "argument --port: Input should be less than or equal to 65535"),
        ("--late-stamp-seconds=-1", "--late-stamp-seconds"),
        ("--late-stamp-seconds=inf", "--late-stamp-seconds"),
        ("--stamps-within-second=never", "--stamps-within-second"),
        ("--rest-version=new", "--rest-version"),
        ("--kept-revisions=0", "--kept-revisions"),
        ("--hyper-profile=2018.1", "--hyper-profile"),
        ("--connected-app client:key:short", "the secret needs 32 bytes"),
        ("--user ann:secret:Admin", "'Admin' is no site role; Tableau has ServerAdmin"),
        ("--user ann:secret:creator", "'creator' is no site role; Tableau has ServerAdmin"),
    ],
)
def test_senseless_arguments(arguments: str, message: str, capsys: pytest.CaptureFixture[str]):
    """Prevents: a mistyped argument ends in a traceback, or starts an unintended sandbox."""
    with pytest.raises(SystemExit):
        main(arguments.split())
    assert message in capsys.readouterr().err


def test_what_cannot_be_used(sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Prevents: a failed start shows a traceback, or two sandboxes share their data."""
    broken = tmp_path / "broken"
    (tmp_path / "file").touch()
    broken.mkdir()
    (broken / "sandbox.sqlite").write_bytes(b"no database" * 100)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for data_dir, number, reason in (
            (tmp_path, port, f"cannot listen on 127.0.0.1:{port}: .*"),
            (tmp_path / "file" / "data", "0", r"cannot use \S+/data: Not a dir.* --data-dir"),
            (broken, "0", r".*sandbox\.sqlite.*"),
            (sandbox.data_dir, "0", ".*Another sandbox is using.*"),
        ):
            assert main(["--port", number, "--data-dir", str(data_dir)]) == 1
            output = capsys.readouterr().err
            assert re.fullmatch(rf"tableau-sandbox: {reason}\n", output), output
    with pytest.raises(sqlite3.DatabaseError, match="not a database"), running_sandbox(broken):
        pass


def test_where_only_the_pipeline_is_installed():
    """Prevents: a missing package shows as a traceback that does not say what to install."""
    code = (
        "import sys; sys.modules['starlette'] = None\n"
        "from tableau_sandbox.__main__ import main\n"
        "sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'tableau_pipeline[sandbox]'" in done.stderr
    assert "Traceback" not in done.stderr


_WITHOUT_THE_EXTRA = """
import sys
import pytest
for name in ("cryptography", "python_multipart", "starlette", "uvicorn"):
    sys.modules[name] = None
sys.exit(pytest.main(["-p", "no:cacheprovider", "-q", *sys.argv[1:]]))
"""


@pytest.mark.slow
def test_pytest_starts_without_the_extra(tmp_path: Path):
    """Prevents: pytest fails in projects that install the pipeline without the sandbox."""
    test = tmp_path / "test_mine.py"
    test.write_text("def test_a(): pass\ndef test_b(tableau_sandbox): pass\n")
    command = [sys.executable, "-c", _WITHOUT_THE_EXTRA, str(test)]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=False)
    assert "1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "pip install 'tableau_pipeline[sandbox]'" in done.stdout


START = datetime(2026, 1, 1, 12, 0, 0, 999_000, UTC)
SECOND = START.replace(microsecond=0)


def date_of(response: requests.Response) -> datetime:
    # A second Date header would be joined to the first, with another comma.
    assert response.headers["Date"].count(",") == 1
    return parsedate_to_datetime(response.headers["Date"])


def test_every_answer_has_the_time_of_the_sandbox(new_server: NewServer, one_row: Path):
    """Prevents: answers show the time of the machine instead of the sandbox's own time."""
    sandbox, server = new_server(clock=lambda: START)
    datasource = f"sites/{{site}}/datasources/{publish(server, one_row).id}"

    def answers() -> list[requests.Response]:
        sandbox.control.add(Refuse(status=503, path="sites/{site}/datasources/refused"))
        return [
            call(sandbox, "GET", "serverInfo"),
            call(sandbox, "GET", datasource),
            call(sandbox, "GET", datasource, server=server),
            call(sandbox, "GET", f"{datasource}/content", server=server),
            call(sandbox, "GET", "sites/{site}/datasources/refused", server=server),
            requests.get(sandbox.url, timeout=TIMEOUT),
            requests.get(f"{sandbox.url}/nowhere", timeout=TIMEOUT),
        ]

    first = answers()
    assert [answer.status_code for answer in first] == [200, 401, 200, 200, 503, 200, 404]
    assert {date_of(answer) for answer in first} == {SECOND}
    sandbox.advance(3600.5)
    assert {date_of(answer) for answer in answers()} == {SECOND + timedelta(seconds=3601)}
    assert sandbox.now() == START + timedelta(seconds=3600.5)


def test_clock_may_disagree_with_the_machine(new_server: NewServer, one_row: Path):
    """Prevents: a pipeline compares times of two machines, and no test shows the mistake."""
    sandbox, server = new_server(clock_offset=-7200)
    expected = datetime.now(UTC) - timedelta(seconds=7200)
    close = timedelta(seconds=30)
    assert abs(publish(server, one_row).updated_at - expected) < close
    for passed in (0, 60):
        sandbox.advance(passed)
        sandbox.restart()
        server_time = date_of(call(sandbox, "GET", "serverInfo"))
        assert abs(server_time - expected - timedelta(seconds=passed)) < close


def test_everything_survives_a_restart(
    sandbox: Sandbox, server: tsc.Server, one_row: Path, two_rows: Path
):
    """Prevents: a restart loses sign-ins, projects, data, tags, uploads or finished jobs."""
    project = server.projects.create(tsc.ProjectItem("Kept"))
    item = publish(server, one_row)
    server.datasources.add_tags(item, ["kept"])
    queued = tsc.DatasourceItem(project.id, name="By job")
    job = server.datasources.publish(queued, two_rows, "CreateNew", as_job=True)
    server.jobs.wait_for_job(job)
    before = server.datasources.get_by_id(item.id)
    upload = server.fileuploads.initiate()
    sandbox.restart()
    after = server.datasources.get_by_id(item.id)
    assert (after.updated_at, after.tags) == (before.updated_at, {"kept"})
    assert rows_on_server(server, item.id) == [[1, "one"]]
    assert server.jobs.get_by_id(job.id).finish_code == 0
    assert [found.id for found in server.projects.filter(name="Kept")] == [project.id]
    block = tsc.server.RequestFactory.Fileupload.chunk_req(b"x")
    assert server.fileuploads.append(upload, *block).file_size == 1


def test_waiting_has_an_end(new_server: NewServer, one_row: Path):
    """Prevents: a test waits for jobs that it holds itself, or waits for ever."""
    sandbox, server = new_server(job_delay=60)
    with pytest.raises(TimeoutError, match="no jobs"):
        sandbox.wait_until_running(timeout=0.05)
    with sandbox.held_jobs("publish_datasource"):
        publish_job(server, one_row)
        sandbox.wait_until_idle()
    sandbox.wait_until_running()
    with pytest.raises(TimeoutError, match="publish_datasource 'Flights' InProgress"):
        sandbox.wait_until_idle(timeout=0.05)


def test_quirks_can_change_later(new_server: NewServer, one_row: Path):
    """Prevents: a simulation has to start a new sandbox to change a quirk."""
    sandbox, server = new_server()
    item = publish(server, one_row)
    first = update(server, item, CLEAR, id="x")
    assert update(server, item, CLEAR, id="x").id == first.id
    sandbox.set_quirks(repeated_request="empty-job")
    again = update(server, item, CLEAR, id="x")
    assert (again.id, again.finish_code, again.type) == (None, -1, None)
    sandbox.wait_until_idle()
    sandbox.restart()
    assert update(server, item, CLEAR, id="x").id is None
    with pytest.raises(TypeError, match="no quirks: tls"):
        sandbox.set_quirks(tls=True)
