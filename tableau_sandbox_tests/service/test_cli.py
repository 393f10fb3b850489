import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests
import tableauserverclient as tsc

from tableau_sandbox.command_line import main
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import TIMEOUT, publish
from tableau_sandbox_tests.service.command import COMMAND, started_sandbox


@pytest.mark.slow
def test_start_and_stop(tmp_path: Path, one_row: Path):
    # Prevents: the command does not say where it is, ignores its options, or does not stop cleanly.
    data_dir = tmp_path / "data"
    options = ("--rest-version", "3.19", "--user", "bob:builder", "--site", "second")
    with started_sandbox(data_dir, *options) as (process, url):
        server = tsc.Server(url, use_server_version=True)
        server.auth.sign_in(tsc.TableauAuth("bob", "builder", "second"))
        assert server.version == "3.19"
        assert publish(server, one_row).owner_id == server.user_id
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    kept = b"".join(path.read_bytes() for path in data_dir.glob("sandbox.sqlite*"))
    assert server.auth_token is not None
    for secret in ("builder", "pipeline-secret", server.auth_token):
        assert secret.encode() not in kept


def test_taken_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    # Prevents: a traceback where one line would do.
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["--port", port, "--data-dir", str(tmp_path)]) == 1
    output = capsys.readouterr().err
    assert re.fullmatch(rf"tableau-sandbox: cannot listen on 127.0.0.1:{port}: .*\n", output)


def test_port_that_no_machine_has(capsys: pytest.CaptureFixture[str]):
    # Prevents: a traceback about a typing error.
    with pytest.raises(SystemExit):
        main(["--port", "99999"])
    assert "argument --port: Input should be less than or equal to 65535" in capsys.readouterr().err


def test_data_that_cannot_be_used(
    sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    # Prevents: a traceback that does not say what to move away, or a second sandbox on the data.
    (tmp_path / "file").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sandbox.sqlite").write_bytes(b"no database" * 100)
    for data_dir, reason in {
        tmp_path / "file" / "data": r"cannot use \S+/data: Not a directory; .* --data-dir",
        tmp_path / "broken": r".*sandbox\.sqlite.*",
        sandbox.data_dir: ".*Another sandbox is using.*",
    }.items():
        assert main(["--port", "0", "--data-dir", str(data_dir)]) == 1
        output = capsys.readouterr().err
        assert re.fullmatch(rf"tableau-sandbox: {reason}\n", output), output


@pytest.mark.slow
def test_dies_with_its_parent(tmp_path: Path):
    # Prevents: a demo that was killed leaves a sandbox behind on its port.
    command = [*COMMAND, "--port", "0", "--data-dir", str(tmp_path), "--die-with-parent"]
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess; subprocess.run({command})"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        url = re.search(r"http://\S+", parent.stdout.readline())
        assert url is not None
        assert requests.get(url.group(), timeout=TIMEOUT).ok
        os.kill(parent.pid, signal.SIGKILL)
        # The pipe ends when the last process that holds it is gone.
        started = time.monotonic()
        parent.stdout.read()
        assert time.monotonic() - started < 5


def test_where_only_the_pipeline_is_installed():
    """Prevents: a traceback that does not say what to install."""
    code = (
        "import sys; sys.modules['starlette'] = None\n"
        "from tableau_sandbox.__main__ import main\n"
        "sys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'tableau_pipeline[sandbox]'" in done.stderr
    assert "Traceback" not in done.stderr
