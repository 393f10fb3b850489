"""The command `refresh`: refresh a data source, in this process or in a deployment."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import dagster as dg
import requests
from rich.text import Text

from tableau_pipeline.command_line.output import LogLines, Output, accept_option, reports, signed
from tableau_pipeline.command_line.project import CodeLocation, open_project
from tableau_pipeline.components.asset_names import asset_keys, step_name
from tableau_pipeline.components.location import in_location
from tableau_pipeline.components.status import failure_of
from tableau_pipeline.dagster_internals import ASSET_JOB
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.outcome import Code, Refusal, accepts_of
from tableau_pipeline.refresh.approval import Approval
from tableau_pipeline.refresh.plan_file import entry_values, read_plan_file
from tableau_pipeline.refresh.saved_plan import SavedPlan
from tableau_pipeline.rendering import command
from tableau_pipeline.resources.services import REFUSALS
from tableau_pipeline.scripting.environment import current_user

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_POLL_SECONDS, _TIMEOUT = 2.0, 60
# Seconds between attempts to ask a web server about a run. The server may be restarting.
_PAUSES = (2, 5, 10, 30, 60)
_END_STATES = ("SUCCESS", "FAILURE", "CANCELED")
_LAUNCH_MUTATION = (
    "mutation($run: ExecutionParams!) {launchRun(executionParams: $run) "
    "{...on LaunchRunSuccess {run {runId}} ...on PythonError {message} ...on Error {message} "
    "...on RunConfigValidationInvalid {errors {message}}}}"
)
_ASSET_QUERY = (
    "query($key: AssetKeyInput!) {assetNodes(assetKeys: [$key]) "
    "{repository {name location {name}}}}"
)
_EVENTS_QUERY = (
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
# The command shows these entries of an asset's metadata.
_RESULT_FIELDS = ("summary", "decision", "reason")


@click.command()
@click.argument("name", required=False)
@click.option("--models", is_flag=True, help="First run its models and all upstream assets.")
@click.option("--full", is_flag=True, help="Send everything, even if nothing changed.")
@click.option("--metadata-only", is_flag=True, help="Publish only metadata, such as captions.")
@accept_option("Accept this once instead of refusing it.")
@click.option(
    "--approval",
    type=_FILE,
    help="Refuse changes outside this approval. Without NAME: refresh all it approves.",
)
@click.option(
    "--plan",
    type=_FILE,
    help="Carry out exactly this saved plan. Without NAME: refresh all it plans.",
)
@click.option("--samples", is_flag=True, help="Show some values of rows in refusals.")
@click.option("--dry-run", is_flag=True, help="Plan and report, but change nothing.")
@click.option("--build-only", is_flag=True, help="Build the full .hyper file, and stop.")
@click.option("--webserver", metavar="URL", help="Run in the deployment of this web server.")
@reports
def refresh(
    module: str | None,
    name: str | None,
    *,
    models: bool,
    webserver: str | None,
    approval: Path | None,
    plan: Path | None,
    output: Output,
    **given: Any,
) -> int:
    """Refresh a data source, as a run in this process or in the deployment of a web server.

    Exit code: 0 the data source was refreshed, 1 the refresh was refused or failed.
    """
    entries = _entries(approval, plan)
    given = {**given, "accept": [*given["accept"]], "by": current_user()}
    results, shown = [], []
    with open_project(module) as project:
        for key in _named_keys(project, name, entries):
            config = given | _config_of(key, entries)
            assets = _selected_assets(project, key, models=models, output=output)
            result = run_refresh(
                project, key, config, assets=assets, webserver=webserver, output=output
            )
            results.append({"key": key, **result})
            summary = str(result.get("summary") or result.get("reason") or "")
            fix = f"    -> {command(key, result['accepts'])}" if result["accepts"] else None
            shown += [signed("=" if result["success"] else "x", summary), fix and Text(fix)]
    output.result(results[0] if name else {"datasources": results}, *shown)
    return 0 if all(result["success"] for result in results) else 1


# Maps an option that names a file to the file's entries by asset key.
_Entries = Mapping[str, Mapping[str, Approval | SavedPlan]]


def _entries(approval: Path | None, plan: Path | None) -> _Entries:
    if approval and plan:
        raise click.UsageError("--approval and --plan exclude each other: a plan is exact")
    files: dict[str, Mapping[str, Approval | SavedPlan]] = {}
    if approval:
        files["approval"] = read_plan_file(approval, Approval)
    if plan:
        files["plan"] = read_plan_file(plan, SavedPlan)
    return files


def _named_keys(project: CodeLocation, name: str | None, entries: _Entries) -> list[str]:
    """Return the named data source's key; without a name, all keys in the plan or approval."""
    if name:
        return [*project.named([name])]
    keys = [key for file in entries.values() for key in file]
    if not entries:
        raise click.UsageError("Name a data source, or give --approval or --plan")
    return [*project.named(keys)] if keys else []


def _config_of(key: str, entries: _Entries) -> dict[str, Any]:
    """Return the entry of a data source in each given file, as values of the run config.

    Raises:
        RefusedError: a file has no entry for the data source.
    """
    config = {}
    for option, file in entries.items():
        if key not in file:
            has = ", ".join(file) or "nothing"
            raise RefusedError(
                f"The file of --{option} has no entry for {key}; it has {has}",
                code=Code.NOT_APPROVED if option == "approval" else Code.PLAN_MOVED,
            )
        config[option] = entry_values(file[key])
    return config


def run_refresh(
    project: CodeLocation,
    key: str,
    config: Mapping[str, Any],
    *,
    webserver: str | None,
    output: Output,
    assets: Sequence[dg.AssetKey] | None = None,
) -> dict[str, Any]:
    """Refresh a data source as a run of Dagster; return the result as values for JSON.

    Args:
        config: the config of the data source's step.
        webserver: the URL of a web server, whose deployment runs the refresh; None for this
            process.
        assets: the assets that the run makes; by default the data source and its extract.
    """
    work = _Work(project, key, assets or asset_keys(key), config)
    return _launch(work, webserver, output) if webserver else _execute(work, output)


@dataclass(frozen=True, slots=True)
class _Work:
    """The assets to run, and the options of the refresh."""

    project: CodeLocation
    key: str
    assets: Sequence[dg.AssetKey]
    given: Mapping[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        return {"ops": {step_name(self.key): {"config": dict(self.given)}}}


def _selected_assets(
    project: CodeLocation, key: str, *, models: bool, output: Output
) -> Sequence[dg.AssetKey]:
    """Return a data source and its extract; with `models`, also the upstream assets.

    Partitioned assets are left out, because a run without a partition cannot make them.
    """
    keys = asset_keys(key)
    if not models:
        return keys
    graph = project.definitions.resolve_asset_graph()
    selected = dg.AssetSelection.assets(*keys).upstream().materializable().resolve(graph)
    partitioned = {asset for asset in selected if graph.get(asset).is_partitioned}
    if partitioned:
        names = ",".join(sorted(asset.to_user_string() for asset in partitioned))
        output.progress(
            "Not run, because they are partitioned. Run their partitions before: dg launch "
            f"--assets {names} --partition-range FIRST...LAST"
        )
    return [*(selected - partitioned)]


def _execute(work: _Work, output: Output) -> dict[str, Any]:
    """Run the assets in this process; return the result as values for JSON."""
    project = work.project
    # Leave out the closing line, which the command itself shows as its result.
    lines = LogLines(output, lambda record: not hasattr(record, "closes"))
    # Use this logger, because Dagster's own logger would put run and step before each line.
    loggers = {"command_line": dg.LoggerDefinition(lambda _: lines)}
    definitions = dg.Definitions.merge(project.definitions, dg.Definitions(loggers=loggers))
    with in_location(project.definitions):
        result = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=project.instance,
            asset_selection=list(work.assets),
            raise_on_error=False,
            run_config={**work.config, "loggers": {"command_line": {"config": {}}}},
        )
    failure = failure_of(project.instance, result.run_id, work.key)
    fields = {"reason": failure.text} if failure.text else {}
    for record in project.instance.get_records_for_run(result.run_id).records:
        event = record.event_log_entry
        reported = event.asset_materialization or event.asset_observation
        if reported and reported.asset_key == dg.AssetKey.from_user_string(work.key):
            metadata = {name: str(value.value) for name, value in reported.metadata.items()}
            fields |= {name: metadata[name] for name in _RESULT_FIELDS if name in metadata}
    return {
        "run_id": result.run_id,
        "success": result.success,
        "accepts": failure.accepts,
        **fields,
    }


def _launch(work: _Work, url: str, output: Output) -> dict[str, Any]:
    """Launch the run through the web server of a deployment, and follow it to its end."""
    nodes = _ask(url, _ASSET_QUERY, key={"path": work.key.split("/")})["assetNodes"]
    if not nodes:
        raise RefusedError(
            f'The deployment at {url} has no asset "{work.key}": deploy it first', code=Code.PROJECT
        )
    repository = nodes[0]["repository"]
    selector = {
        "repositoryLocationName": repository["location"]["name"],
        "repositoryName": repository["name"],
        "jobName": ASSET_JOB,
        "assetSelection": [{"path": asset.path} for asset in work.assets],
    }
    run = {"selector": selector, "runConfigData": work.config}
    try:
        launched = _ask(url, _LAUNCH_MUTATION, run=run)["launchRun"]
    except RefreshError as error:
        if not isinstance(error.__cause__, requests.RequestException):
            raise
        raise RefreshError(
            f"{error}. The run may have started: look at {url.rstrip('/')}/runs first"
        ) from error
    if "run" not in launched:
        # An older deployment, for example, may not know an option of the run config.
        problems = [each["message"] for each in launched.get("errors", ())]
        problem = launched.get("message") or "; ".join(problems)
        raise RefreshError(f"{url} did not start the run: {problem}")
    run_id = launched["run"]["runId"]
    output.progress(f"Run {run_id}: {url.rstrip('/')}/runs/{run_id}")
    return _follow(run_id, work.key, url, output)


def _follow(run_id: str, key: str, url: str, output: Output) -> dict[str, Any]:
    """Show the log of a run until its end; return the result as values for JSON."""
    status, reason, accepts, cursor, fields = "", "", list[str](), None, dict[str, str]()
    while status not in _END_STATES:
        time.sleep(_POLL_SECONDS if status else 0)
        run = _news_of(run_id, url, cursor)
        if "status" not in run:
            raise RefreshError(f"{url} does not know run {run_id}: {run.get('message')}")
        status, cursor = run["status"], run["eventConnection"]["cursor"]
        for event in run["eventConnection"]["events"]:
            if event["__typename"] == "ExecutionStepFailureEvent":
                metadata = event["failureMetadata"] or {}
                reason = metadata.get("description") or event["error"]["message"]
                accepts = _accepts(metadata.get("metadataEntries") or [])
            elif event["__typename"] == "LogMessageEvent" and event["level"] != "DEBUG":
                output.progress(event["message"])
            elif (event.get("assetKey") or {}).get("path") == key.split("/"):
                texts = {entry["label"]: entry.get("text") for entry in event["metadataEntries"]}
                fields |= {name: texts[name] for name in _RESULT_FIELDS if texts.get(name)}
    if status == "SUCCESS":
        return {"run_id": run_id, "success": True, "accepts": [], **fields}
    reason = reason or f"the run ended as {status}"
    return {"run_id": run_id, "success": False, "accepts": accepts, "reason": reason}


def _news_of(run_id: str, url: str, cursor: str | None) -> dict[str, Any]:
    """Return the status of a run, and its events since the cursor.

    Raises:
        RefreshError: several attempts in a row got no answer from the web server.
    """
    for pause in (*_PAUSES, None):
        try:
            return _ask(url, _EVENTS_QUERY, id=run_id, after=cursor)["runOrError"]
        except RefreshError as error:
            if pause is None:
                raise RefreshError(f"{error}. Run {run_id} may still go on there") from error
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def _accepts(metadata: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the values of `accept` that would let the failed step succeed."""
    texts = [entry["jsonString"] for entry in metadata if entry.get("label") == REFUSALS]
    return accepts_of(Refusal.of_json(refusal) for text in texts for refusal in json.loads(text))


def _ask(url: str, query: str, **variables: Any) -> dict[str, Any]:
    """Send a GraphQL query to the web server of a deployment; return its data.

    Raises:
        RefreshError: the server does not answer, or rejects the query.
    """
    request, endpoint = {"query": query, "variables": variables}, f"{url.rstrip('/')}/graphql"
    try:
        answer = requests.post(endpoint, json=request, timeout=_TIMEOUT)
        answer.raise_for_status()
        result = answer.json()
    except (requests.RequestException, ValueError) as error:
        raise RefreshError(
            f"No Dagster web server answers at {url}: {type(error).__name__}. Give a URL such as "
            "http://127.0.0.1:3000"
        ) from error
    if errors := result.get("errors"):
        raise RefreshError(f"The web server at {url} did not understand: {errors[0]['message']}")
    return result["data"]
