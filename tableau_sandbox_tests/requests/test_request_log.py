import re
import signal
import subprocess
from pathlib import Path

import requests
import tableauserverclient as tsc

from tableau_sandbox_tests.samples import TIMEOUT
from tableau_sandbox_tests.service.command import COMMAND, read_url


def requests_logged(data_dir: Path, *options: str) -> str:
    """What a sandbox says of a sign-in and of a request that is not for it."""
    command = [*COMMAND, "--port", "0", "--data-dir", str(data_dir), *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        server = tsc.Server(read_url(process), use_server_version=True)
        server.auth.sign_in(tsc.PersonalAccessTokenAuth("pipeline", "pipeline-secret"))
        requests.get(f"{server.server_address}/a%0Ab?token=t0ken", timeout=TIMEOUT)
        process.send_signal(signal.SIGTERM)
        log = process.communicate(timeout=TIMEOUT)[1]
        assert server.auth_token is None or server.auth_token not in log
        return log


def test_requests_are_logged_without_secrets(tmp_path: Path):
    # Prevents: nobody sees what a client does, or everybody sees with which secret.
    log = requests_logged(tmp_path)
    assert re.search(r"^\d\d:\d\d:\d\d POST /api/\S+/auth/signin 200 \d+ ms$", log, re.M)
    assert re.search(r" GET /a%0Ab 404 \d+ ms$", log, re.M)
    for secret in ("pipeline-secret", "t0ken"):
        assert secret not in log


def test_quiet(tmp_path: Path):
    # Prevents: a caller that does not read what the sandbox says blocks it.
    assert requests_logged(tmp_path, "--quiet") == ""
