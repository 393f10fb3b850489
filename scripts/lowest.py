"""Try the oldest versions that pyproject.toml allows, if it has changed since the last try."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from install import pip_settings, uv_environment

# What passed the last time.
_TRIED = Path("constraints-lowest.txt")
_TESTS = (
    *(f"tableau_pipeline_tests/{name}" for name in ("hyper", "lake", "objects", "ingest")),
    "tableau_pipeline_tests/components/test_published_datasource.py",
    "tableau_pipeline_tests/test_location.py",
)


def try_lowest() -> None:
    """Install them into an environment of its own, run tests there, and write down what passed.

    Raises:
        CalledProcessError: they cannot be installed, or a test has failed.
    """
    environment = {**os.environ, **uv_environment(pip_settings())}
    uv = [sys.executable, "-m", "uv", "--quiet"]
    lowest = ["--resolution", "lowest-direct"]
    extras = ["--extra", "dev", "--extra", "dagster-plus"]
    listed = [*uv, "pip", "compile", *lowest, *extras, "--no-deps", "--no-header", "--no-annotate"]
    versions = subprocess.run(
        [*listed, "pyproject.toml"], env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    if _TRIED.exists() and _TRIED.read_text("utf-8") == versions:
        sys.stdout.write(f"The versions in {_TRIED} were tried before\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/bin/python"
        subprocess.run([*uv, "venv", folder], env=environment, check=True)
        install = [*uv, "pip", "install", "--python", python, *lowest, "--editable", ".[dev]"]
        subprocess.run(install, env=environment, check=True)
        chosen = ["-m", "not slow and not long", "--numprocesses", "2", *_TESTS]
        subprocess.run([python, "-m", "pytest", *chosen], check=True)
    _TRIED.write_text(versions, "utf-8")
    sys.stdout.write(f"They pass: commit {_TRIED}\n")


if __name__ == "__main__":
    try:
        try_lowest()
    except subprocess.CalledProcessError as error:
        sys.exit(f"A lower bound in pyproject.toml is too low: raise it ({error})")
