"""Free ports, waiting, and Dagster's web server and daemon as real processes."""

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from socket import socket
from typing import Any

import httpx

# The ports for servers are lower than the ports that systems give to connections (Linux: from
# 32768, macOS: from 49152). A connection could take a higher port during the ten seconds in which
# a server starts.
_FIRST, _LAST = 10_000, 32_000


def free_port() -> int:
    """A port of 127.0.0.1 that no process uses now."""
    while True:
        # A random port, because tests in several processes choose at once.
        port = _FIRST + secrets.randbelow(_LAST - _FIRST)
        with socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def until(found: Callable[[], Any], *, seconds: float, what: str, log: Path | None = None) -> Any:
    """Return the first answer that is not empty; at the deadline, raise an error with a log."""
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what}\n{log.read_text()[-5000:] if log else ''}")
        time.sleep(0.3)
    return answer


ENDED = ("SUCCESS", "FAILURE", "CANCELED")
LAUNCH = """
mutation($selector: JobOrPipelineSelector!, $config: RunConfigData) {
  launchRun(executionParams: {selector: $selector, runConfigData: $config}) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } }
}"""
BACKFILL = """
mutation($asset: AssetKeyInput!, $partitions: [String!]!) {
  launchPartitionBackfill(backfillParams: {assetSelection: [$asset], partitionNames: $partitions}) {
    __typename ... on PythonError { message } } }"""
STATUS = """
query($run: ID!) {
  runOrError(runId: $run) { ... on Run { status } }
}"""
RUNS = "{ runsOrError { ... on Runs { results { runId status assetSelection { path } } } } }"
SHIPPED = """
query($key: AssetKeyInput!) {
  assetOrError(assetKey: $key) { ... on Asset { assetMaterializations(limit: 1) {
    runId metadataEntries {
      label ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text } } } } } }"""


class WebServer:
    """A client of the GraphQL API that Dagster's pages use."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        # `verify=False` skips loading certificates, which takes longer than the whole request.
        answer = httpx.post(
            f"{self.url}/graphql",
            json={"query": query, "variables": variables},
            timeout=60,
            verify=False,
        ).json()
        assert "errors" not in answer, answer["errors"]
        return answer["data"]

    def launch(self, location: str, *assets: str, config: Mapping[str, Any] | None = None) -> str:
        """Launch a run of some assets, wait for its end, and return its status."""
        return self.ended(self.launched(location, *assets, config=config))

    def launched(self, location: str, *assets: str, config: Mapping[str, Any] | None = None) -> str:
        """Launch a run of some assets, or of all assets; return the ID of the run."""
        selector = {
            "repositoryLocationName": location,
            "repositoryName": "__repository__",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": asset.split("/")} for asset in assets] or None,
        }
        launched = self.ask(LAUNCH, selector=selector, config=config or {})["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return launched["run"]["runId"]

    def backfill(self, asset: str, partitions: Sequence[str]) -> None:
        """Have the daemon materialize some partitions of an asset."""
        launched = self.ask(BACKFILL, asset={"path": [asset]}, partitions=partitions)
        answer = launched["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer

    def runs_of(self, asset: str) -> dict[str, list[str]]:
        """The assets of each run that has this asset, by the ID of the run."""
        selected = {
            run["runId"]: sorted("/".join(each["path"]) for each in run["assetSelection"] or ())
            for run in self._runs()
        }
        return {run: assets for run, assets in selected.items() if asset in assets}

    def next_run(self, asset: str, *, known: Collection[str] = ()) -> tuple[str, list[str]]:
        """Wait until a new run of an asset has succeeded; return the ID and the assets of the run.

        Runs in `known` are not new.
        """
        new = until(
            lambda: {run: all_ for run, all_ in self.runs_of(asset).items() if run not in known},
            seconds=400, what=f"{asset} should have been materialized",
        )  # fmt: skip
        ((run, assets),) = new.items()
        assert self.ended(run) == "SUCCESS"
        return run, assets

    def shipped(self, datasource: str) -> dict[str, Any]:
        """The metadata of a data source's last materialization, and the ID of its run."""
        asset = self.ask(SHIPPED, key={"path": [datasource]})["assetOrError"]
        (last,) = asset["assetMaterializations"]
        metadata = {
            each["label"]: each.get("text", each.get("intValue"))
            for each in last["metadataEntries"]
        }
        return {"run": last["runId"], **metadata}

    def quiet(self) -> bool:
        """Whether every run has ended."""
        return all(run["status"] in ENDED for run in self._runs())

    def ended(self, run_id: str, *, seconds: float = 400) -> str:
        """Wait until a run has ended, and return its status."""
        return until(
            lambda: self._ended(run_id), seconds=seconds, what=f"run {run_id} should have ended"
        )

    def _runs(self) -> list[dict[str, Any]]:
        return self.ask(RUNS)["runsOrError"]["results"]

    def _ended(self, run_id: str) -> str | None:
        status = self.ask(STATUS, run=run_id)["runOrError"]["status"]
        return status if status in ENDED else None

    def answers(self) -> bool:
        """Whether the server is up."""
        try:
            return httpx.get(f"{self.url}/server_info", timeout=5, verify=False).status_code == 200
        except httpx.TransportError:
            return False


def dg_dev(
    folder: Path, environment: Mapping[str, str], log: Path
) -> AbstractContextManager[WebServer]:
    """Run `dg dev -w workspace.yaml` in a folder: web server, daemon and code servers."""
    return served("dg", "dev", folder=folder, environment=environment, log=log)


@contextmanager
def served(
    *command: str, folder: Path, environment: Mapping[str, str], log: Path
) -> Iterator[WebServer]:
    """Run a command that serves the folder's workspace.yaml on a free port."""
    program, *arguments = command
    port = free_port()
    here = [str(Path(sys.executable).with_name(program)), *arguments, "-w", "workspace.yaml",
            "--host", "127.0.0.1", "--port", str(port)]  # fmt: skip
    with running(here, folder=folder, environment=environment, log=log, by=signal.SIGINT):
        server = WebServer(f"http://127.0.0.1:{port}")
        until(server.answers, seconds=600, what="no web server", log=log)
        yield server


@contextmanager
def running(
    command: Sequence[str | Path],
    *,
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    by: signal.Signals = signal.SIGTERM,
) -> Iterator[subprocess.Popen]:
    """Run a process during the block; a signal ends it after the block."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        stop(process, by=by)


def said(process: subprocess.Popen, log: Path, pattern: str) -> re.Match[str]:
    """Wait until the log of a process matches a pattern, and return the match."""
    what = f"no {pattern!r} in {log}"
    found = until(
        lambda: re.search(pattern, log.read_text()) or process.poll() is not None,
        seconds=300, what=what, log=log,
    )  # fmt: skip
    assert isinstance(found, re.Match), (
        f"{what}, and the process has ended:\n{log.read_text()[-5000:]}"
    )
    return found


def stop(process: subprocess.Popen, *, by: signal.Signals = signal.SIGINT) -> None:
    """End a server, and all processes of its session."""
    process.send_signal(by)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        # On a busy machine, Dagster may overlook the end of a child process, and wait for ever.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
