import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

_INSTALL_SECONDS = 600
_RUN_SECONDS = 120

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def environment() -> Callable[..., Path]:
    """Makes virtual environments; later runs find them again in the temporary directory."""

    def make(*requirements: str) -> Path:
        version = "{}.{}".format(*sys.version_info)
        digest = hashlib.sha256("\n".join((version, *requirements)).encode()).hexdigest()[:12]
        # A name of its own for each user: another one could put programs there.
        folder = Path(tempfile.gettempdir(), f"tableau-sandbox-clients-{os.getuid()}")
        folder.mkdir(mode=0o700, exist_ok=True)
        assert folder.stat().st_uid == os.getuid()
        made = folder / digest
        with FileLock(folder / f"{digest}.lock"):
            if not (made / "complete").exists():
                run(sys.executable, "-m", "venv", "--clear", str(made), seconds=_INSTALL_SECONDS)
                pip = [str(made / "bin" / "pip"), "install", "--quiet"]
                run(*pip, "--disable-pip-version-check", *requirements, seconds=_INSTALL_SECONDS)
                (made / "complete").touch()
        return made / "bin"

    return make


def run(
    *command: str, cwd: Path | None = None, seconds: int = _RUN_SECONDS, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program that knows nothing of this project; it must succeed."""
    kept = {name: os.environ[name] for name in os.environ if not name.startswith("PYTHON")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**kept, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done
