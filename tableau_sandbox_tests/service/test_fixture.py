import os
import subprocess
import sys
from pathlib import Path

import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import signed_in

_WITHOUT_THE_EXTRA = """
import sys
import pytest
for name in ("cryptography", "python_multipart", "starlette", "uvicorn"):
    sys.modules[name] = None
sys.exit(pytest.main(["-p", "no:cacheprovider", "-q", *sys.argv[1:]]))
"""


def test_a_test_gets_a_server_of_its_own(tableau_sandbox: Sandbox):
    # Prevents: users who cannot test their own code without a Tableau Server.
    assert os.environ["TABLEAU_SERVER_URL"] == tableau_sandbox.url
    server: tsc.Server = signed_in(tableau_sandbox)
    assert [project.name for project in server.projects.get()[0]] == ["Default"]


def test_pytest_starts_without_the_extra(tmp_path: Path):
    # Prevents: pytest fails in every project that installs the pipeline without the sandbox.
    test = tmp_path / "test_mine.py"
    test.write_text("def test_a(): pass\ndef test_b(tableau_sandbox): pass\n")
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_THE_EXTRA, str(test)],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
    )
    assert "1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "pip install 'tableau_pipeline[sandbox]'" in done.stdout


def test_the_plugin_imports_nothing_but_pytest():
    # Prevents: every start of pytest waits for a web server's libraries.
    code = (
        "import sys, pytest; before = set(sys.modules); import tableau_sandbox.pytest_plugin; "
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert set(done.stdout.split()) <= {"tableau_sandbox", "tableau_sandbox.pytest_plugin"}
