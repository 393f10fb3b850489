"""A Python environment for each contender whose requirements are not ours."""

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
# What the work is done by: the same for all, or one would be compared with another's Spark.
_SHARED = ("pyspark", "pyarrow", "pandas", "tableauhyperapi")


def python_of(environment: str | None) -> str:
    """The interpreter of an environment, made when it is missing; None is our own.

    Raises:
        subprocess.CalledProcessError: pip failed, and said why.
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
