"""Programs in virtual environments of their own, which know nothing of this project."""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from filelock import FileLock

_INSTALL_SECONDS = 600
_RUN_SECONDS = 120


def environment(*requirements: str) -> Path:
    """Make a virtual environment; later runs find it again in the temporary directory.

    Returns:
        the folder of its programs.
    """
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
