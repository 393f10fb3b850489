"""`make dev` as a user runs it: the real web server, daemon and sandbox."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Any

import httpx
import pytest

from tableau_pipeline_tests.conftest import ROOT, Story

LAUNCH = """
mutation($config: RunConfigData) {
  launchPipelineExecution(executionParams: {
    selector: {
      repositoryLocationName: "tableau_pipeline", repositoryName: "__repository__",
      pipelineName: "__ASSET_JOB",
      assetSelection: [{path: ["nyc_flights"]}, {path: ["nyc_flights_extract"]}]
    }
    runConfigData: $config
  }) { __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } }
}"""
STATUS = """
query($run: ID!) {
  runOrError(runId: $run) { ... on Run { status } }
}"""
PUBLISHED = """
{ assetNodes(assetKeys: [{path: ["nyc_flights"]}]) {
    kinds groupName owners { ... on TeamAssetOwner { team } }
    assetMaterializations(limit: 1) { metadataEntries {
      label ... on IntMetadataEntry { intValue } ... on UrlMetadataEntry { url }
      ... on TextMetadataEntry { text } } } } }"""
LOCATIONS = """
{ workspaceOrError { ... on Workspace { locationEntries {
    name loadStatus locationOrLoadError { __typename ... on PythonError { message } } } } } }"""


class WebServer:
    """Dagster's GraphQL, as its pages use it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        answer = httpx.post(
            f"{self.url}/graphql", json={"query": query, "variables": variables}, timeout=30
        ).json()
        assert "errors" not in answer, answer["errors"]
        return answer["data"]

    def run(self, config: dict[str, Any]) -> str:
        """Launch a refresh and wait for the daemon to run it; its final status."""
        launched = self.ask(LAUNCH, config=config)["launchPipelineExecution"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        run_id = launched["run"]["runId"]
        return until(
            lambda: self._finished(run_id), seconds=90, what=f"run {run_id} should have ended"
        )

    def _finished(self, run_id: str) -> str | None:
        status = self.ask(STATUS, run=run_id)["runOrError"]["status"]
        return status if status in ("SUCCESS", "FAILURE", "CANCELED") else None


def until(found: Callable[[], Any], *, seconds: float, what: str) -> Any:
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < deadline, what
        time.sleep(0.3)
    return answer


@contextmanager
def dev(folder: Path, **variables: str) -> Iterator[tuple[WebServer, str]]:
    """`make dev` on free ports; the web server and the sandbox's URL."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = folder / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "PORT": str(port),
        "SANDBOX_PORT": "0",
        **variables,
    }
    log = folder / "dev.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tableau_pipeline.demo.dev"],
            cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        server = WebServer(f"http://127.0.0.1:{port}")
        until(lambda: _answers(server), seconds=60, what=log.read_text())
        sandbox = re.search(r"http://\S+", log.read_text())
        assert sandbox
        yield server, sandbox[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def _answers(server: WebServer) -> bool:
    try:
        return httpx.get(f"{server.url}/server_info", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def _answers_at(url: str) -> bool:
    return _answers(WebServer(url))


@pytest.mark.timeout(300)
def test_refresh_from_the_web_without_java_and_a_clean_end(story: Story, tmp_path: Path):
    """Prevents: a location that tests load and the servers do not; a JVM for moving files; servers
    that outlive `make dev`."""
    no_java = {"JAVA_HOME": str(tmp_path / "no java"), "PATH": "/usr/bin/nothing"}
    with dev(tmp_path, PIPELINE_DATA_DIR=str(story.data_dir), **no_java) as (server, sandbox):
        (location,) = server.ask(LOCATIONS)["workspaceOrError"]["locationEntries"]
        assert location["name"] == "tableau_pipeline"
        assert location["locationOrLoadError"]["__typename"] == "RepositoryLocation"
        assert server.run({}) == "SUCCESS"
        (node,) = server.ask(PUBLISHED)["assetNodes"]
        assert (node["kinds"], node["groupName"]) == (["tableau"], "nyc_flights")
        assert node["owners"] == [{"team": "aviation"}]
        (materialization,) = node["assetMaterializations"]
        metadata = {entry["label"]: entry for entry in materialization["metadataEntries"]}
        assert metadata["rows/flights"]["intValue"] == 336_762
        assert metadata["decision"]["text"] == "publish (create)"
        link = metadata["data source"]["url"]
        assert link.startswith(sandbox)
        page = httpx.get(link)
        assert page.status_code == 200
        assert "NYC Flights" in page.text
    for url in (server.url, sandbox):
        with pytest.raises(httpx.TransportError):
            httpx.get(url)
