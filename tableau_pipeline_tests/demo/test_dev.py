"""`make dev` as a user runs it: the real web server, daemon and sandbox."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket

import httpx
import pytest

from tableau_pipeline.demo import dev as command
from tableau_pipeline.demo.sandbox_process import local_sandbox
from tableau_pipeline_tests.conftest import ROOT, Story
from tableau_pipeline_tests.dagster_servers import WebServer, free_port, running, until
from tableau_pipeline_tests.docs.page import page

PUBLISHED = """
{ assetNodes(assetKeys: [{path: ["nyc_flights"]}]) {
    kinds groupName owners { ... on TeamAssetOwner { team } }
    assetMaterializations(limit: 1) { metadataEntries {
      label ... on IntMetadataEntry { intValue } ... on UrlMetadataEntry { url }
      ... on TextMetadataEntry { text } } } } }"""
LOCATIONS = """
{ workspaceOrError { ... on Workspace { locationEntries {
    name loadStatus locationOrLoadError { __typename ... on PythonError { message } } } } } }"""


@contextmanager
def dev(folder: Path, **variables: str) -> Iterator[tuple[WebServer, str]]:
    """Run `make dev` on free ports; the block gets the web server and the sandbox's URL."""
    home, log, port = folder / "home", folder / "dev.log", free_port()
    home.mkdir(exist_ok=True)
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
    ours = {"DAGSTER_HOME": str(home), "PORT": str(port), "SANDBOX_PORT": "0"}
    environment = {**os.environ, **ours, **variables}
    command = [sys.executable, "-m", "tableau_pipeline.demo.dev"]
    with running(command, folder=ROOT, environment=environment, log=log, by=signal.SIGINT):
        server = WebServer(f"http://127.0.0.1:{port}")
        until(server.answers, seconds=180, what="no web server", log=log)
        sandbox = re.search(r"http://\S+", log.read_text())
        assert sandbox
        yield server, sandbox[0]


def refresh_as_documented(server: WebServer) -> str:
    """Make the documented call, as another system would; return the ID of the run."""
    (call,) = page("how-to/other-systems.md").whole.blocks("bash")
    documented = "http://127.0.0.1:3000"
    assert documented in call
    answer = subprocess.run(
        ["bash", "-c", call.replace(documented, server.url)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(answer.stdout)["data"]["launchRun"]["run"]["runId"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_refresh_from_the_web_without_java_and_a_clean_end(story: Story, tmp_path: Path):
    """Prevents: `make dev` loads no location, needs Java for files, or leaves servers behind."""
    no_java = {"JAVA_HOME": str(tmp_path / "no java"), "PATH": "/usr/bin/nothing"}
    # `make dev` starts another sandbox, so it must not use the records of the fixture `story`.
    ours = {"PIPELINE_DATA_DIR": str(story.data_dir), "PIPELINE_DEPLOYMENT": "dev"}
    with dev(tmp_path, **ours, **no_java) as (server, sandbox):
        (location,) = server.ask(LOCATIONS)["workspaceOrError"]["locationEntries"]
        assert location["name"] == "tableau_pipeline"
        assert location["locationOrLoadError"]["__typename"] == "RepositoryLocation"
        assert server.ended(refresh_as_documented(server)) == "SUCCESS"
        (node,) = server.ask(PUBLISHED)["assetNodes"]
        assert (node["kinds"], node["groupName"]) == (["tableau"], "nyc_flights")
        assert node["owners"] == [{"team": "aviation"}]
        (materialization,) = node["assetMaterializations"]
        metadata = {entry["label"]: entry for entry in materialization["metadataEntries"]}
        assert metadata["dagster/row_count"]["intValue"] == 336_762
        assert metadata["decision"]["text"] == "publish (create)"
        link = metadata["data source"]["url"]
        assert link.startswith(sandbox)
        page = httpx.get(link)
        assert page.status_code == 200
        assert "NYC Flights" in page.text
    for url in (server.url, sandbox):
        with pytest.raises(httpx.TransportError):
            httpx.get(url)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_web_shows_what_the_demo_published(tmp_path: Path):
    """Prevents: assets look green although the sandbox is empty, or links have no server."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
    variables = {"PIPELINE_DATA_DIR": str(tmp_path / "data"), "SANDBOX_PORT": str(free_port())}
    output = subprocess.run(
        [sys.executable, "-m", "tableau_pipeline.demo"], cwd=ROOT, check=True,
        env={**os.environ, **variables, "DAGSTER_HOME": str(home)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ).stdout  # fmt: skip
    lines = output.splitlines()
    assert output.count("Starting Spark, which takes some seconds") == 1
    # This message comes before the first asset, so that users know what takes so long.
    assert _first(lines, "Starting Spark") < _first(lines, "raw_airlines")
    assert sum(line.endswith(" equal") for line in lines) == 10
    with dev(tmp_path, **variables) as (server, _):
        (node,) = server.ask(PUBLISHED)["assetNodes"]
        (materialization,) = node["assetMaterializations"]
        (link,) = (each["url"] for each in materialization["metadataEntries"] if "url" in each)
        assert "NYC Flights" in httpx.get(link).raise_for_status().text


def _first(lines: list[str], text: str) -> int:
    return next(number for number, line in enumerate(lines) if text in line)


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SANDBOX_PORT", str(free_port()))


@pytest.mark.slow
def test_a_port_in_use(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """Prevents: the error about a port in use names no remedy."""
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("SANDBOX_PORT", str(port))
        with pytest.raises(RuntimeError) as raised, local_sandbox():
            pass
        for part in (f"127.0.0.1:{port}", "in use", "SANDBOX_PORT=8766"):
            assert part in str(raised.value)
        monkeypatch.setenv("PORT", str(port))
        assert command.main() == 1
        assert f"cannot use port {port}" in (message := capsys.readouterr().err)
        assert "PORT=3001 make dev" in message


@pytest.mark.parametrize("port", ["web", "-1"])
def test_no_port(monkeypatch: pytest.MonkeyPatch, port: str):
    """Prevents: a mistyped port leads to a traceback."""
    monkeypatch.setenv("SANDBOX_PORT", port)
    with pytest.raises(RuntimeError, match=f"SANDBOX_PORT is '{port}'"), local_sandbox():
        pass
