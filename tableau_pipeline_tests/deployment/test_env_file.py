"""A .env made of .env.example, for each way to start Dagster."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.dagster_servers import stop
from tableau_pipeline_tests.ports import free_port
from tableau_pipeline_tests.waiting import until

SAID = "PIPELINE_TRIGGERS is 'perhaps'"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["dg dev", "dagster-webserver", "dagster-daemon run"])
def test_it_is_read(command: str, tmp_path: Path):
    """Prevents: a setting that works at the desk and is nothing on the server, or the reverse."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
    shutil.copy(ROOT / "workspace.yaml", tmp_path)
    # A word at which the location stops, and says so; without DAGSTER_HOME the daemon would stop.
    settings = (ROOT / ".env.example").read_text("utf-8").replace(":-off}", ":-perhaps}")
    (tmp_path / ".env").write_text(f"{settings}DAGSTER_HOME={home}\n", "utf-8")
    program, *arguments = command.split()
    arguments += ["-w", "workspace.yaml"]
    arguments += [] if "daemon" in program else ["--port", str(free_port())]
    output = tmp_path / "log"
    with output.open("w") as log:
        process = subprocess.Popen(
            [Path(sys.executable).with_name(program), *arguments],
            cwd=tmp_path, env=os.environ, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        until(
            lambda: process.poll() is not None or SAID in output.read_text(),
            seconds=120,
            what=f"{command} has not read .env",
        )
        assert process.poll() is None, output.read_text()
    finally:
        stop(process)
    assert len(list(home.iterdir())) > 1, "the DAGSTER_HOME of .env is not in use"


def test_it_gives_way_to_the_environment():
    """Prevents: a .env on the server that silently overrules what the container was given."""
    lines = (ROOT / ".env.example").read_text("utf-8").splitlines()
    set_here = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert len(set_here) > 15
    for name, value in set_here.items():
        assert value.startswith(f"${{{name}:-"), name
