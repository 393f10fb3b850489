"""The command `refresh`: a run of one data source, here or in a deployment."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
import dagster as dg
import requests

from tableau_pipeline.command_line.output import Output, logger, signed
from tableau_pipeline.command_line.project import Project, assets_of, opened
from tableau_pipeline.command_line.records import failure_of
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.refresh.plan import Accept

_POLL_SECONDS, _TIMEOUT = 2.0, 60
_ENDED = ("SUCCESS", "FAILURE", "CANCELED")
_RUN = (
    "mutation($run: ExecutionParams!) {launchRun(executionParams: $run) "
    "{...on LaunchRunSuccess {run {runId}} ...on PythonError {message} ...on Error {message}}}"
)
_ASSET = (
    "query($key: AssetKeyInput!) {assetNodes(assetKeys: [$key]) "
    "{repository {name location {name}} jobNames}}"
)
_EVENTS = (
    "query($id: ID!, $after: String) {runOrError(runId: $id) {...on Run {status "
    "eventConnection(afterCursor: $after, limit: 1000) {cursor events {__typename "
    "...on LogMessageEvent {level message} ...on ExecutionStepFailureEvent "
    "{stepKey error {message} failureMetadata {description}}}}} ...on Error {message}}}"
)


@click.command()
@click.argument("name")
@click.option("--models", is_flag=True, help="Run its models before, with all upstream of them.")
@click.option("--full", is_flag=True, help="Send everything, even if nothing changed.")
@click.option(
    "--accept",
    multiple=True,
    type=click.Choice([str(each) for each in Accept]),
    help="What to accept once instead of refusing it.",
)
@click.option("--dry-run", is_flag=True, help="Plan and report, but change nothing.")
@click.option("--build-only", is_flag=True, help="Build the whole .hyper file, and stop.")
@click.option("--webserver", metavar="URL", help="Run it in the deployment of this web server.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object.")
@click.pass_obj
def refresh(
    module: str | None,
    name: str,
    *,
    models: bool,
    webserver: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Refresh a data source: in this process, as a run of this Dagster instance.

    Exit code: 0 it was refreshed, 1 it was refused or failed.
    """
    output = Output(as_json=as_json)
    with opened(module) as project:
        (key,) = project.named([name])
        keys = _selected(project, key, models=models, output=output)
        config = _run_config(key, **given)
        run = _deployed if webserver else _executed
        success, data = run(project, key, keys=keys, config=config, output=output, url=webserver)
    told = str(data.get("summary") or data.get("reason") or "")
    output.result(data, signed("=" if success else "x", told))
    return 0 if success else 1


def _run_config(
    key: str, *, full: bool, accept: Sequence[str], dry_run: bool, build_only: bool
) -> dict[str, Any]:
    config = {"full": full, "accept": list(accept), "dry_run": dry_run, "build_only": build_only}
    return {"ops": {key.replace("/", "__"): {"config": config}}}


def _selected(project: Project, key: str, *, models: bool, output: Output) -> Sequence[dg.AssetKey]:
    """The two assets of a data source; with its models, all that need no partition."""
    keys = assets_of(key)
    if not models:
        return keys
    graph = project.definitions.resolve_asset_graph()
    found = dg.AssetSelection.assets(*keys).upstream().materializable().resolve(graph)
    parted = sorted(each.to_user_string() for each in found if graph.get(each).is_partitioned)
    if parted:
        output.progress(
            f"Not run, because they are partitioned: {', '.join(parted)}. Run their partitions "
            "from the web UI"
        )
    return [each for each in found if not graph.get(each).is_partitioned]


def _executed(
    project: Project,
    key: str,
    *,
    keys: Sequence[dg.AssetKey],
    config: Mapping[str, Any],
    output: Output,
    url: str | None,
) -> tuple[bool, dict[str, Any]]:
    """Run it in this process."""
    name = project.datasources[key].name
    # The closing line is the result of the command.
    lines = logger(output, lambda text: not text.startswith(f"{name}: "))
    loggers = {"command_line": dg.LoggerDefinition(lambda _: lines)}
    definitions = dg.Definitions.merge(project.definitions, dg.Definitions(loggers=loggers))
    # Dagster's own logger puts run and step before each line.
    result = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=project.instance,
        asset_selection=list(keys),
        raise_on_error=False,
        run_config={**config, "loggers": {"command_line": {"config": {}}}},
    )
    data: dict[str, Any] = {"key": key, "run_id": result.run_id, "success": result.success}
    if not result.success:
        reason = failure_of(project.instance, result.run_id, key.replace("/", "__"))
        return False, data | {"reason": reason}
    published = dg.AssetKey.from_user_string(key)
    for record in project.instance.get_records_for_run(result.run_id).records:
        event = record.event_log_entry
        found = event.asset_materialization or event.asset_observation
        if found and found.asset_key == published:
            metadata = {name: value.value for name, value in found.metadata.items()}
            data |= {name: metadata.get(name) for name in ("summary", "decision", "reason")}
    return True, data


def _deployed(
    project: Project,
    key: str,
    *,
    keys: Sequence[dg.AssetKey],
    config: Mapping[str, Any],
    output: Output,
    url: str | None,
) -> tuple[bool, dict[str, Any]]:
    """Launch it through the web server of a deployment, and follow it."""
    nodes = _asked(url, _ASSET, key={"path": key.split("/")})["assetNodes"]
    if not nodes:
        raise RefusedError(f'The deployment at {url} has no asset "{key}": deploy it first')
    (node, *_) = nodes
    selector = {
        "repositoryLocationName": node["repository"]["location"]["name"],
        "repositoryName": node["repository"]["name"],
        "jobName": "__ASSET_JOB",
        "assetSelection": [{"path": each.path} for each in keys],
    }
    launched = _asked(url, _RUN, run={"selector": selector, "runConfigData": config})["launchRun"]
    if "run" not in launched:
        raise RefreshError(f"{url} did not start the run: {launched.get('message')}")
    run_id = launched["run"]["runId"]
    output.progress(f"Run {run_id}: {str(url).rstrip('/')}/runs/{run_id}")
    status, reason, summary, cursor = "", "", "", None
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
            elif event["__typename"] == "LogMessageEvent" and event["level"] != "DEBUG":
                summary = event["message"]
                output.progress(summary)
    success = status == "SUCCESS"
    told = {"summary": summary} if success else {"reason": reason or f"the run ended as {status}"}
    return success, {"key": key, "run_id": run_id, "success": success, **told}


def _asked(url: str | None, query: str, **variables: Any) -> dict[str, Any]:
    """Ask the web server of a deployment.

    Raises:
        RefreshError: it does not answer, or does not understand.
    """
    try:
        answer = requests.post(
            f"{str(url).rstrip('/')}/graphql",
            json={"query": query, "variables": variables},
            timeout=_TIMEOUT,
        )
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
