"""A folder that the real daemon watches."""

import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.dagster_servers import stop
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_pipeline_tests.waiting import until
from tableau_sandbox.testing import Sandbox

LOCATION = """
import dagster as dg
from tableau_pipeline.components import FileDrop
from tableau_pipeline.resources import resources_from_env

drop = FileDrop.from_attributes_dict(attributes={"folder": %r, "pattern": "*.csv", "seconds": 1})
defs = dg.Definitions.merge(
    drop.build_defs(dg.ComponentTree.for_test().load_context),
    dg.Definitions(resources=resources_from_env()),
)
"""


@contextmanager
def daemon(location: Path, environment: dict[str, str], log: Path) -> Generator[None]:
    """Dagster's daemon, with this file as its code location."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "dagster._daemon", "run", "-f", location],
            cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        stop(process)


def updates(sandbox: Sandbox) -> dict[str, str]:
    """When each data source was updated, by its name."""
    with session(sandbox) as site:
        return {item.name: str(item.updated_at) for item in site.tsc.datasources.all()}


@pytest.mark.slow
def test_dropped_files_are_published(tableau_sandbox: Sandbox, tmp_path: Path):
    """Prevents: a sensor that works in tests only; a file that is published at every tick."""
    folder, home, location = tmp_path / "drop", tmp_path / "home", tmp_path / "location.py"
    folder.mkdir()
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    location.write_text(LOCATION % str(folder))
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "PIPELINE_DATA_DIR": str(tmp_path / "data"),
    }
    dagster = str(Path(sys.executable).with_name("dagster"))
    subprocess.run(
        [dagster, "sensor", "start", "file_drop", "-f", location],
        cwd=ROOT, env=environment, check=True, capture_output=True,
    )  # fmt: skip
    (folder / "sales.csv").write_text("id,v\n1,a\n")
    log = tmp_path / "daemon.log"
    with daemon(location, environment, log):
        first = until(
            lambda: updates(tableau_sandbox), seconds=400, what="nothing was published", log=log
        )
        assert first.keys() == {"sales"}
        # Some more ticks, in which nothing may happen.
        time.sleep(15)
        assert updates(tableau_sandbox) == first
    runs = subprocess.run(
        [dagster, "run", "list"], env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert runs.count("file_drop_publish_file") == 1
