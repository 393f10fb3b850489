"""Read files of dbt: the last invocation, which starts refreshes, and descriptions of columns."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from zlib import crc32

import dagster as dg
from pydantic import AliasPath, BaseModel, Field, ValidationError
from upath import UPath

from tableau_pipeline.components.asset_names import with_models
from tableau_pipeline.components.instigators import default_status
from tableau_pipeline.core.fields import FieldMetadata
from tableau_pipeline.dagster_internals import not_none
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.outcome import Code
from tableau_pipeline.yaml_keys import keyed


@keyed
class DbtTrigger:
    """Refresh the data source and its Spark models after dbt has run outside Dagster."""

    dbt: str = Field(
        min_length=1,
        description="Path or URL of dbt's run_results.json: s3://lake/target/run_results.json.",
    )
    models: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Names or unique ids of dbt models. A refresh starts if an invocation built "
        "one of these models. It does not start if one of them failed or was skipped, or if a "
        "test on one of them failed. Default: all models.",
    )


_BUILDS = ("run", "build", "retry")
_GOOD = ("success", "pass", "warn", "no-op", "reused")
_TABLES = ("model", "seed", "snapshot")


class NotABuildError(Exception):
    """There is no new build by dbt; the message states why."""


class _Result(BaseModel):
    unique_id: str
    status: str


class Invocation(BaseModel):
    """One `dbt run`, `build` or `retry`.

    Attributes:
        id: dbt's invocation id.
        results: the status of each node that dbt ran or skipped. A retry lists only nodes that
            failed before, so it may lack nodes that an earlier invocation built.
        parents: maps each node in the manifest to its parents. The parents of a test are the tested
            models.
    """

    id: str = Field(validation_alias=AliasPath("metadata", "invocation_id"))
    command: str = Field(validation_alias=AliasPath("args", "which"))
    results: list[_Result]
    parents: Mapping[str, list[str]] = {}

    def obstacle(self, models: Iterable[str] | None) -> str | None:
        """Return why assets made of these models must not be refreshed; None without an obstacle.

        Args:
            models: names or unique ids of models; None for all models of the dbt project.
        """
        relevant = [
            result
            for result in self.results
            if models is None or self._concerns(result.unique_id, set(models))
        ]
        if not relevant:
            return f"{', '.join(models)}: not part of it" if models else "it built no models"
        bad = [f"{node.unique_id}: {node.status}" for node in relevant if node.status not in _GOOD]
        return ", ".join(bad) or None

    def _concerns(self, node: str, models: set[str]) -> bool:
        """Whether a node affects these models. A test of unknown models affects all models."""
        is_table = node.split(".")[0] in _TABLES
        tested = [node] if is_table else self.parents.get(node)
        # A unique id is model.<project>.<name>, or model.<project>.<name>.v2.
        return tested is None or any(
            model in models or bool(models.intersection(model.split(".")[2:3])) for model in tested
        )


def read_invocation(run_results: str, *, seen: str | None) -> Invocation:
    """Read dbt's last invocation.

    Args:
        run_results: path or URL of run_results.json.
        seen: the id of the last invocation that the sensor has handled; None if there is none.

    Raises:
        NotABuildError: the file does not exist, dbt is still writing it, another dbt command wrote
            it, or it has the invocation `seen`.
    """
    path = UPath(run_results)
    try:
        invocation = Invocation.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise NotABuildError(f"{run_results}: there is no such file") from error
    except ValidationError as error:
        message = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise NotABuildError(
            f"{run_results} cannot be read, perhaps because dbt is writing it: {message}"
        ) from error
    if invocation.id == seen:
        raise NotABuildError(f"dbt's last invocation, {seen}, was already followed")
    if invocation.command not in _BUILDS:
        raise NotABuildError(
            f"dbt's last command was `{invocation.command}`: only {', '.join(_BUILDS)} count"
        )
    # Without a manifest, the parents are unknown, so a failed test stops the refreshes of all
    # models. To skip a refresh is better than to publish bad data.
    with suppress(FileNotFoundError, ValueError, KeyError):
        manifest = json.loads(path.with_name("manifest.json").read_bytes())
        return invocation.model_copy(update={"parents": manifest["parent_map"]})
    return invocation


_TAG = "dbt/invocation_id"


def dbt_sensors(triggers: Mapping[str, object]) -> list[dg.SensorDefinition]:
    """Return a sensor, with a job, for each distinct run_results.json.

    Args:
        triggers: maps the asset keys of all data sources to their triggers, of any kind.
    """
    followers: dict[str, dict[str, DbtTrigger]] = defaultdict(dict)
    for key, trigger in triggers.items():
        if isinstance(trigger, DbtTrigger):
            followers[trigger.dbt][key] = trigger
    return [_dbt_sensor(file, triggers) for file, triggers in followers.items()]


def dbt_sensor_name(file: str) -> str:
    """Return the name of the sensor that reads this run_results.json."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", file).strip("_")
    # Add a digest, because two paths may yield the same words, and Dagster keeps a cursor per name.
    return f"refresh_after_dbt_{words[-60:]}_{crc32(file.encode()):08x}"


def _dbt_sensor(file: str, triggers: Mapping[str, DbtTrigger]) -> dg.SensorDefinition:
    name = dbt_sensor_name(file)
    job = dg.define_asset_job(f"{name}_job", selection=with_models(triggers))

    @dg.sensor(
        name=name,
        job=job,
        default_status=default_status(dg.DefaultSensorStatus),
        description=f"Refreshes data sources and their Spark models after the dbt of {file}.",
    )
    def after_dbt(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            invocation = read_invocation(file, seen=context.cursor)
        except NotABuildError as reason:
            return dg.SkipReason(str(reason))
        obstacles = {key: invocation.obstacle(trigger.models) for key, trigger in triggers.items()}
        skipped = [
            f"{key} is not refreshed after dbt's invocation {invocation.id}: {obstacle}"
            for key, obstacle in obstacles.items()
            if obstacle
        ]
        followers = [key for key, obstacle in obstacles.items() if not obstacle]
        # A tick that requests runs shows no skip reason, so log the data sources that are not
        # refreshed.
        for message in skipped if followers else ():
            context.log.warning(message)
        graph = not_none(context.repository_def).asset_graph
        requests = [
            dg.RunRequest(
                # Dagster runs each run key once. So a reset of the cursor does not repeat a
                # refresh.
                run_key=f"{invocation.id} {datasource}",
                # Leave out partitioned assets, because dbt does not report which partition is new.
                asset_selection=[
                    asset
                    for asset in with_models([datasource]).resolve(graph)
                    if not graph.get(asset).is_partitioned
                ],
                tags={_TAG: invocation.id},
            )
            for datasource in followers
        ]
        # Always advance the cursor. Otherwise each tick would process this invocation again.
        skip_reason = None if followers else "\n".join(skipped)
        return dg.SensorResult(requests, cursor=invocation.id, skip_reason=skip_reason)

    return after_dbt


def manifest_nodes(run_results: str) -> Mapping[str, Any]:
    """Return the nodes of the manifest next to a run_results.json; {} without a manifest.

    Raises:
        RefreshError: the manifest cannot be read.
    """
    manifest = UPath(run_results).with_name("manifest.json")
    try:
        return json.loads(manifest.read_bytes())["nodes"]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError) as error:
        raise RefreshError(
            f"{manifest} cannot be read, perhaps because dbt is writing it: {error}. Run again"
        ) from error


def node_columns(nodes: Mapping[str, Any], node: str) -> Iterator[tuple[str, FieldMetadata]]:
    """Yield the name and the metadata of each column of a node in the manifest.

    Raises:
        RefusedError: `meta.tableau` has an unknown key or value.
    """
    for name, column in nodes[node].get("columns", {}).items():
        meta = column.get("meta") or column.get("config", {}).get("meta") or {}
        try:
            field = FieldMetadata(**meta.get("tableau", {}))
        except ValidationError as error:
            (first, *_) = error.errors()
            raise RefusedError(
                f'meta.tableau of the column "{name}" of {node} in dbt: '
                f"{'.'.join(map(str, first['loc']))}: {first['msg']}. Its keys are those of a "
                "field: caption, description, format, role, aggregation, geo, hidden and folder",
                code=Code.DECLARATION,
            ) from error
        yield name, replace(field, description=field.description or column.get("description", ""))
