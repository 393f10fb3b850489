import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tableau_sandbox.command_line import main
from tableau_sandbox.testing import Sandbox


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
