"""Programs of others, in environments of their own that know nothing of this project."""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from filelock import FileLock

_INSTALL_SECONDS, _RUN_SECONDS = 900, 120


def installed(*requirements: str) -> Path:
    """The folder of programs of an environment with packages; later runs find it again."""
    named = "\n".join([sys.version, *requirements]).encode()
    folder = Path(tempfile.gettempdir(), f"tableau_sandbox-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / hashlib.sha256(named).hexdigest()[:12]
    with FileLock(f"{made}.lock"):
        if not (made / "complete").exists():
            run(sys.executable, "-m", "venv", "--clear", str(made), seconds=_INSTALL_SECONDS)
            pip = [str(made / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
            run(*pip, *requirements, seconds=_INSTALL_SECONDS)
            (made / "complete").touch()
    return made / "bin"


def run(
    *command: str, cwd: Path | None = None, seconds: int = _RUN_SECONDS, **variables: str
) -> str:
    """What a program prints, which has to succeed."""
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
    return done.stdout


def run_script(script: str, *arguments: object, packages: tuple[str, ...], **variables: str) -> str:
    """What a script prints, where these packages are installed."""
    python = str(installed(*packages) / Path(sys.executable).name)
    return run(python, "-c", script, *map(str, arguments), **variables)
