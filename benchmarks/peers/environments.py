"""Python environments for contenders (compared libraries) whose requirements differ from ours."""

import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

_ENVIRONMENTS = Path(__file__).parents[2] / "data" / "bench" / "envs"
_REQUIREMENTS = {
    "hyperleaup": "hyperleaup==0.1.2",
    "koheesio": "koheesio[pyspark,tableau]==0.11.1",
}
# All environments get our versions of these packages, so that no contender profits from another
# Spark.
_SHARED = ("pyspark", "pyarrow", "pandas", "tableauhyperapi")


def python_of(environment: str | None) -> str:
    """Return the interpreter of an environment, and create the environment if it is missing.

    Args:
        environment: its name; None means our own interpreter.

    Raises:
        subprocess.CalledProcessError: pip failed, and printed the reason.
    """
    if environment is None:
        return sys.executable
    folder = _ENVIRONMENTS / environment
    python = folder / "bin" / "python"
    shared = [f"{package}=={version(package)}" for package in _SHARED]
    wanted = "\n".join([_REQUIREMENTS[environment], *shared])
    installed = folder / "installed"
    if not installed.exists() or installed.read_text() != wanted:
        print(f"Setting up {folder}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([str(python), *install, *wanted.splitlines()], check=True)
        installed.write_text(wanted)
    return str(python)
