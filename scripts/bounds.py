"""Test the lowest or newest versions that pyproject.toml allows, if its ranges have changed."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from install import pip_settings, uv_environment

# How uv chooses the versions of the packages in pyproject.toml.
_RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
_TESTS = (
    *(f"tableau_pipeline_tests/{name}" for name in ("hyper", "objects", "ingest", "metadata")),
    "tableau_pipeline_tests/publishing",
    "tableau_pipeline_tests/refresh/lakes",
    "tableau_pipeline_tests/components/test_published_datasource.py",
    "tableau_pipeline_tests/snapshots/test_spark_internals.py",
    "tableau_pipeline_tests/test_dagster_internals.py",
    "tableau_pipeline_tests/test_location.py",
)


def try_bound(bound: str, *, again: bool) -> None:
    """Install the versions into a fresh environment, run tests there, and list the versions.

    Args:
        bound: which versions to choose: "lowest" or "newest".
        again: whether to test even if the ranges have not changed since the last list.

    Raises:
        CalledProcessError: the versions cannot be installed, or a test has failed.
    """
    listed, ranges = Path(f"constraints-{bound}.txt"), f"# Of the ranges {_digest()}\n"
    if not again and listed.exists() and listed.read_text("utf-8").startswith(ranges):
        sys.stdout.write(f"The ranges of {listed} have not changed\n")
        return
    environment = {**os.environ, **uv_environment(pip_settings())}
    uv = [sys.executable, "-m", "uv", "--quiet"]
    chosen = ["--resolution", _RESOLUTIONS[bound]]
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/bin/python"
        subprocess.run([*uv, "venv", folder], env=environment, check=True)
        install = [*uv, "pip", "install", "--python", python, *chosen, "--editable", ".[dev]"]
        subprocess.run(install, env=environment, check=True)
        tests = ["-m", "not slow and not long", "--numprocesses", "2", *_TESTS]
        subprocess.run([python, "-m", "pytest", *tests], check=True)
    listed.write_text(ranges + _versions(uv, chosen, environment), "utf-8")
    sys.stdout.write(f"These versions pass the tests: commit {listed}\n")


def _digest() -> str:
    """Return a digest of the ranges in pyproject.toml."""
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    ranges = {name: project[name] for name in ("dependencies", "optional-dependencies")}
    return hashlib.sha256(json.dumps(ranges, sort_keys=True).encode()).hexdigest()[:16]


def _versions(uv: list[str], chosen: list[str], environment: Mapping[str, str]) -> str:
    extras = ["--extra", "dev", "--extra", "dagster-plus"]
    command = [*uv, "pip", "compile", *chosen, *extras, "--no-deps", "--no-header", "--no-annotate"]
    return subprocess.run(
        [*command, "pyproject.toml"], env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


if __name__ == "__main__":
    try:
        try_bound(sys.argv[1], again="--again" in sys.argv)
    except subprocess.CalledProcessError as error:
        sys.exit(f"The {sys.argv[1]} versions that pyproject.toml allows fail: {error}")
