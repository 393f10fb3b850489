"""The command `refresh`: a run of one data source, here or in a deployment."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import dagster as dg
import requests
from rich.text import Text

from tableau_pipeline.command_line import CodeLocation, open_project
from tableau_pipeline.command_line.output import LogLines, Output, reports, signed
from tableau_pipeline.components.asset_names import asset_keys, step_name
from tableau_pipeline.components.location import in_location
from tableau_pipeline.components.status import failure_of
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.outcome import Accept, Code, Refusal, accepts_of
from tableau_pipeline.rendering import command
from tableau_pipeline.resources.services import REFUSALS

_POLL_SECONDS, _TIMEOUT = 2.0, 60
_ENDED = ("SUCCESS", "FAILURE", "CANCELED")
_RUN = (
    "mutation($run: ExecutionParams!) {launchRun(executionParams: $run) "
    "{...on LaunchRunSuccess {run {runId}} ...on PythonError {message} ...on Error {message}}}"
)
_ASSET = (
    "query($key: AssetKeyInput!) {assetNodes(assetKeys: [$key]) "
    "{repository {name location {name}}}}"
)
_EVENTS = (
    "query($id: ID!, $after: String) {runOrError(runId: $id) {...on Run {status "
    "eventConnection(afterCursor: $after, limit: 1000) {cursor events {__typename "
    "...on LogMessageEvent {level message} ...on ExecutionStepFailureEvent "
    "{stepKey error {message} failureMetadata {description "
    "metadataEntries {label ...on JsonMetadataEntry {jsonString}}}} "
    "...on MaterializationEvent {assetKey {path} metadataEntries "
    "{label ...on TextMetadataEntry {text}}} "
    "...on ObservationEvent {assetKey {path} metadataEntries "
    "{label ...on TextMetadataEntry {text}}}}}} ...on Error {message}}}"
)
# What a run tells of a data source in the metadata of its asset.
_TOLD = ("summary", "decision", "reason")


@click.command()
@click.argument("name")
@click.option("--models", is_flag=True, help="Run its models before, with all upstream of them.")
@click.option("--full", is_flag=True, help="Send everything, even if nothing changed.")
@click.option("--metadata-only", is_flag=True, help="Publish captions and the like, no new rows.")
@click.option(
    "--accept",
    multiple=True,
    type=click.Choice([str(each) for each in Accept]),
    help="What to accept once instead of refusing it.",
)
@click.option("--dry-run", is_flag=True, help="Plan and report, but change nothing.")
@click.option("--build-only", is_flag=True, help="Build the full .hyper file, and stop.")
@click.option("--webserver", metavar="URL", help="Run it in the deployment of this web server.")
@reports
def refresh(
    module: str | None,
    name: str,
    *,
    models: bool,
    webserver: str | None,
    output: Output,
    **given: Any,
) -> int:
    """Refresh a data source: in this process, as a run of this Dagster instance.

    Exit code: 0 it was refreshed, 1 it was refused or failed.
    """
    with open_project(module) as project:
        (key,) = project.named([name])
        work = _Work(project, key, _selected(project, key, models=models, output=output), given)
        done = _deployed(work, webserver, output) if webserver else _executed(work, output)
        data = {"key": key, **done}
    told = str(data.get("summary") or data.get("reason") or "")
    accepts = data["accepts"]
    fix = Text(f"    -> {command(key, accepts)}") if accepts else None
    output.result(data, signed("=" if data["success"] else "x", told), fix)
    return 0 if data["success"] else 1


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be run: these assets, with the data source in this config."""

    project: CodeLocation
    key: str
    assets: Sequence[dg.AssetKey]
    given: Mapping[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        config = {**self.given, "accept": list(self.given["accept"])}
        return {"ops": {step_name(self.key): {"config": config}}}


def _selected(
    project: CodeLocation, key: str, *, models: bool, output: Output
) -> Sequence[dg.AssetKey]:
    """The two assets of a data source; with its models, all that need no partition."""
    keys = asset_keys(key)
    if not models:
        return keys
    graph = project.definitions.resolve_asset_graph()
    found = dg.AssetSelection.assets(*keys).upstream().materializable().resolve(graph)
    parted = {each for each in found if graph.get(each).is_partitioned}
    if parted:
        names = ",".join(sorted(each.to_user_string() for each in parted))
        output.progress(
            "Not run, because they are partitioned. Run their partitions before: dg launch "
            f"--assets {names} --partition-range FIRST...LAST"
        )
    return [*(found - parted)]


def _executed(work: _Work, output: Output) -> dict[str, Any]:
    """Run it in this process."""
    project = work.project
    # The closing line is the result of the command.
    lines = LogLines(output, lambda record: not hasattr(record, "closes"))
    # Dagster's own logger puts run and step before each line.
    loggers = {"command_line": dg.LoggerDefinition(lambda _: lines)}
    definitions = dg.Definitions.merge(project.definitions, dg.Definitions(loggers=loggers))
    with in_location(project.definitions):
        done = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=project.instance,
            asset_selection=list(work.assets),
            raise_on_error=False,
            run_config={**work.config, "loggers": {"command_line": {"config": {}}}},
        )
    failure = failure_of(project.instance, done.run_id, work.key)
    told = {"reason": failure.text} if failure.text else {}
    for record in project.instance.get_records_for_run(done.run_id).records:
        event = record.event_log_entry
        found = event.asset_materialization or event.asset_observation
        if found and found.asset_key == dg.AssetKey.from_user_string(work.key):
            said = {name: str(value.value) for name, value in found.metadata.items()}
            told |= {name: said[name] for name in _TOLD if name in said}
    return {"run_id": done.run_id, "success": done.success, "accepts": failure.accepts, **told}


def _deployed(work: _Work, url: str, output: Output) -> dict[str, Any]:
    """Launch it through the web server of a deployment, and follow it."""
    nodes = _asked(url, _ASSET, key={"path": work.key.split("/")})["assetNodes"]
    if not nodes:
        raise RefusedError(
            f'The deployment at {url} has no asset "{work.key}": deploy it first', code=Code.PROJECT
        )
    repository = nodes[0]["repository"]
    selector = {
        "repositoryLocationName": repository["location"]["name"],
        "repositoryName": repository["name"],
        "jobName": "__ASSET_JOB",
        "assetSelection": [{"path": each.path} for each in work.assets],
    }
    run = {"selector": selector, "runConfigData": work.config}
    launched = _asked(url, _RUN, run=run)["launchRun"]
    if "run" not in launched:
        raise RefreshError(f"{url} did not start the run: {launched.get('message')}")
    run_id = launched["run"]["runId"]
    output.progress(f"Run {run_id}: {url.rstrip('/')}/runs/{run_id}")
    status, reason, accepts, cursor, told = "", "", list[str](), None, dict[str, str]()
    while status not in _ENDED:
        time.sleep(_POLL_SECONDS if status else 0)
        run = _asked(url, _EVENTS, id=run_id, after=cursor)["runOrError"]
        if "status" not in run:
            raise RefreshError(f"{url} knows nothing of run {run_id}: {run.get('message')}")
        status, cursor = run["status"], run["eventConnection"]["cursor"]
        for event in run["eventConnection"]["events"]:
            if event["__typename"] == "ExecutionStepFailureEvent":
                said = event["failureMetadata"] or {}
                reason = said.get("description") or event["error"]["message"]
                accepts = _accepts(said.get("metadataEntries") or [])
            elif event["__typename"] == "LogMessageEvent" and event["level"] != "DEBUG":
                output.progress(event["message"])
            elif (event.get("assetKey") or {}).get("path") == work.key.split("/"):
                found = {each["label"]: each.get("text") for each in event["metadataEntries"]}
                told |= {name: found[name] for name in _TOLD if found.get(name)}
    if status == "SUCCESS":
        return {"run_id": run_id, "success": True, "accepts": [], **told}
    reason = reason or f"the run ended as {status}"
    return {"run_id": run_id, "success": False, "accepts": accepts, "reason": reason}


def _accepts(metadata: Sequence[Mapping[str, str]]) -> list[str]:
    """What the failure of a step asks to be accepted."""
    found = [each["jsonString"] for each in metadata if each.get("label") == REFUSALS]
    return accepts_of(Refusal.of_json(each) for text in found for each in json.loads(text))


def _asked(url: str, query: str, **variables: Any) -> dict[str, Any]:
    """Ask the web server of a deployment."""
    asked, endpoint = {"query": query, "variables": variables}, f"{url.rstrip('/')}/graphql"
    try:
        answer = requests.post(endpoint, json=asked, timeout=_TIMEOUT)
        answer.raise_for_status()
        found = answer.json()
    except (requests.RequestException, ValueError) as error:
        raise RefreshError(
            f"No Dagster web server answers at {url}: {type(error).__name__}. Name it as in "
            "http://127.0.0.1:3000"
        ) from error
    if errors := found.get("errors"):
        raise RefreshError(f"The web server at {url} did not understand: {errors[0]['message']}")
    return found["data"]
