"""The sensors and schedules of the data sources of a code location."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from zlib import crc32

import dagster as dg
from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph
from dagster._core.scheduler.instigation import InstigatorStatus
from dagster._utils.schedules import get_next_cron_tick
from dagster_shared.check import not_none
from pydantic import AliasPath, BaseModel, Field, ValidationError
from upath import UPath

from tableau_pipeline.components.published_datasource import (
    PublishedDatasource,
    asset_keys,
)
from tableau_pipeline.components.triggers import (
    AfterTrigger,
    CronTrigger,
    DbtTrigger,
    default_status,
)
from tableau_pipeline.components.yaml_component import DeclarationError
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.lake.tables import current_version


@dataclass(frozen=True)
class _Due(dg.AssetSelection):
    """What the schedules of these data sources run; Dagster resolves it as the location loads."""

    datasources: Sequence[PublishedDatasource]

    def resolve_inner(self, asset_graph: BaseAssetGraph, allow_missing: bool) -> Set[dg.AssetKey]:
        """Return the keys of the assets."""
        return {key for each in self.datasources for key in due(each, asset_graph)}


def due(datasource: PublishedDatasource, graph: BaseAssetGraph) -> Set[dg.AssetKey]:
    """Return what the schedule of a data source runs.

    Raises:
        DeclarationError: it is to run the models first, and no schedule can.
    """
    if not runs_models(datasource):
        # One step makes both assets, and Dagster refuses to run half of it.
        return frozenset(asset_keys(datasource.key))
    keys = _with_models([datasource.key]).resolve(graph)
    made = {key.to_user_string() for key in keys}
    in_lakes = {table.model for table in datasource.tables if table.source}
    problems = [
        f'no asset of this code location makes the model "{model}"'
        for model in sorted(set(datasource.models) - in_lakes - made)
    ]
    problems += [
        f'"{key.to_user_string()}" is partitioned, and a schedule does not know which partition is '
        "due"
        for key in sorted(keys)
        if graph.get(key).is_partitioned
    ]
    if problems:
        raise DeclarationError(
            f'"{datasource.name}" cannot run its models first: {"; ".join(problems)}. Let it '
            "follow them: trigger: {after: any}"
        )
    return keys


def runs_models(datasource: PublishedDatasource) -> bool:
    """Return whether the schedule of a data source runs its models first."""
    return isinstance(datasource.trigger, CronTrigger) and datasource.trigger.upstream


def refresh_schedules(datasources: Iterable[PublishedDatasource]) -> list[dg.ScheduleDefinition]:
    """Return a schedule for each data source with a `cron`, named after it.

    They share one job, because Dagster resolves every job against all assets.
    """
    timed = [each for each in datasources if isinstance(each.trigger, CronTrigger)]
    job = dg.define_asset_job(
        "tableau_at_fixed_times",
        selection=_Due(timed),
        description="What the schedules of data sources run, each its own part of it.",
    )
    return [_schedule(each, timed, job) for each in timed]


def schedule_name(datasource: PublishedDatasource) -> str:
    """Return the name of the schedule of a data source with a `cron`."""
    return f"refresh_{datasource.key.replace('/', '__')}"


def _schedule(
    datasource: PublishedDatasource, timed: Sequence[PublishedDatasource], job: Any
) -> dg.ScheduleDefinition:
    trigger: Any = datasource.trigger
    together = [each for each in timed if runs_models(each) and each.trigger == trigger]

    @dg.schedule(
        name=schedule_name(datasource),
        job=job,
        cron_schedule=trigger.cron,
        execution_timezone=trigger.timezone,
        default_status=default_status(dg.DefaultScheduleStatus),
        description=f'Refreshes "{datasource.name}"{" after its models" * trigger.upstream}.',
    )
    def at_fixed_times(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        location = not_none(context.repository_def)
        # They may share models. One run for all of them runs each model once.
        names = _on(context.instance, location.schedule_defs) if len(together) > 1 else ()
        on = [each for each in together if schedule_name(each) in names]
        at_once = on if datasource in on else [datasource]
        if at_once[0] is not datasource:
            return dg.SkipReason(
                f'The schedule {schedule_name(at_once[0])} runs the models of "{datasource.name}" '
                "at the same time, so its run refreshes both"
            )
        keys = {key for each in at_once for key in due(each, location.asset_graph)}
        return dg.RunRequest(asset_selection=sorted(keys))

    return at_fixed_times


def _on(instance: dg.DagsterInstance, parts: Iterable[Any]) -> set[str]:
    """The names of the schedules and sensors that are on, by the web UI or by default."""
    states = {each.instigator_name: each.status for each in instance.all_instigator_state()}
    on, by_default = InstigatorStatus.RUNNING, InstigatorStatus.DECLARED_IN_CODE
    return {
        each.name
        for each in parts
        if (state := states.get(each.name, by_default)) is on
        # Not every kind of them has a default.
        or (state is by_default and getattr(each, "default_status", by_default).value == on.value)
    }


_BUILDS = ("run", "build", "retry")
_GOOD = ("success", "pass", "warn", "no-op", "reused")
_TABLES = ("model", "seed", "snapshot")


class NotABuildError(Exception):
    """There is no invocation to follow; the message states why. A later look may find one."""


class _Result(BaseModel):
    unique_id: str
    status: str


class Invocation(BaseModel):
    """One `dbt run`, `build` or `retry`.

    Attributes:
        id: dbt's invocation id.
        results: of each node that it ran or skipped. A retry lists only what had failed before, so
            a missing node is no obstacle.
        parents: the parents of each node, in the manifest. Those of a test are the models that it
            tests.
    """

    id: str = Field(validation_alias=AliasPath("metadata", "invocation_id"))
    command: str = Field(validation_alias=AliasPath("args", "which"))
    results: list[_Result]
    parents: Mapping[str, list[str]] = {}

    def obstacle(self, models: Iterable[str] | None) -> str | None:
        """Return why assets made of these models must not be refreshed; None if they may be.

        Args:
            models: names or unique ids; None for all models of the dbt project.
        """
        mine = [
            each
            for each in self.results
            if models is None or self._concerns(each.unique_id, set(models))
        ]
        if not mine:
            return f"{', '.join(models)}: not part of it" if models else "it built no models"
        bad = [f"{each.unique_id}: {each.status}" for each in mine if each.status not in _GOOD]
        return ", ".join(bad) or None

    def _concerns(self, node: str, models: set[str]) -> bool:
        """Whether a node affects these models. A test without known parents affects them all."""
        is_table = node.split(".")[0] in _TABLES
        tested = [node] if is_table else self.parents.get(node)
        # A unique id is model.<project>.<name>, or model.<project>.<name>.v2.
        return tested is None or any(
            each in models or bool(models.intersection(each.split(".")[2:3])) for each in tested
        )


def read_invocation(run_results: str, *, seen: str | None) -> Invocation:
    """Read dbt's last invocation.

    Args:
        run_results: path or URL of run_results.json.
        seen: the id of an invocation that was already followed.

    Raises:
        NotABuildError: the file does not exist, dbt is still writing it, it is the result of
            another command, or its invocation is the one already seen.
    """
    path = UPath(run_results)
    try:
        found = Invocation.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        raise NotABuildError(f"{run_results}: there is no such file") from error
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise NotABuildError(
            f"{run_results} cannot be read, perhaps because dbt is writing it: {wrong}"
        ) from error
    if found.id == seen:
        raise NotABuildError(f"dbt's last invocation, {seen}, was already followed")
    if found.command not in _BUILDS:
        raise NotABuildError(
            f"dbt's last command was `{found.command}`: only {', '.join(_BUILDS)} count"
        )
    # Without the parents every test counts for all models: a refresh too few, but none on bad data.
    with suppress(FileNotFoundError, ValueError, KeyError):
        manifest = json.loads(path.with_name("manifest.json").read_bytes())
        return found.model_copy(update={"parents": manifest["parent_map"]})
    return found


_TAG = "dbt/invocation_id"


def dbt_sensors(datasources: Iterable[PublishedDatasource]) -> list[dg.SensorDefinition]:
    """Return one sensor, with its job, for each distinct run_results.json, read once per tick."""
    followers: dict[str, dict[str, DbtTrigger]] = defaultdict(dict)
    for datasource in datasources:
        if isinstance(trigger := datasource.trigger, DbtTrigger):
            followers[trigger.dbt][datasource.key] = trigger
    return [_dbt_sensor(file, triggers) for file, triggers in followers.items()]


def _dbt_name(file: str) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "_", file).strip("_")
    # Two paths may yield the same words, and Dagster keeps a sensor's cursor under its name.
    return f"refresh_after_dbt_{words[-60:]}_{crc32(file.encode()):08x}"


def _dbt_sensor(file: str, triggers: Mapping[str, DbtTrigger]) -> dg.SensorDefinition:
    name = _dbt_name(file)
    job = dg.define_asset_job(f"{name}_job", selection=_with_models(triggers))

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
        obstacles = {key: invocation.obstacle(each.models) for key, each in triggers.items()}
        skipped = [
            f"{key} is not refreshed after dbt's invocation {invocation.id}: {obstacle}"
            for key, obstacle in obstacles.items()
            if obstacle
        ]
        followers = [key for key, obstacle in obstacles.items() if not obstacle]
        # A tick that requests runs shows no skip reason, so its log lists what was left out.
        for reason in skipped if followers else ():
            context.log.warning(reason)
        graph = not_none(context.repository_def).asset_graph
        requests = [
            dg.RunRequest(
                # Dagster runs each key once, so a sensor whose cursor was reset repeats no refresh.
                run_key=f"{invocation.id} {datasource}",
                # dbt does not report which partition is new.
                asset_selection=[
                    key
                    for key in _with_models([datasource]).resolve(graph)
                    if not graph.get(key).is_partitioned
                ],
                tags={_TAG: invocation.id},
            )
            for datasource in followers
        ]
        # The cursor moves on in any case, or every tick would judge this invocation again.
        told = None if followers else "\n".join(skipped)
        return dg.SensorResult(requests, cursor=invocation.id, skip_reason=told)

    return after_dbt


def _with_models(datasources: Iterable[str]) -> dg.AssetSelection:
    keys = chain.from_iterable(map(asset_keys, datasources))
    # The models' own sources are often tables of dbt, which no run of this location can make.
    return dg.AssetSelection.assets(*keys).upstream().materializable()


def lake_sensors(datasources: Iterable[PublishedDatasource]) -> list[dg.SensorDefinition]:
    """Return one sensor for all tables of lakes; none if there are no such tables."""
    tables = {
        table.model: table.source
        for datasource in datasources
        for table in datasource.tables
        if table.source
    }

    @dg.sensor(
        name="new_versions_of_lake_tables",
        minimum_interval_seconds=60,
        default_status=default_status(dg.DefaultSensorStatus),
        description=f"Tells Dagster of new versions of {', '.join(sorted(tables))}, for triggers "
        "and the lineage.",
    )
    def lake_versions(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        reported: dict[str, str] = json.loads(context.cursor or "{}")
        # Of a table that is no longer declared, nothing is kept.
        known = {model: version for model, version in reported.items() if model in tables}
        events, problems = [], []
        for model, table in tables.items():
            try:
                version = current_version(table)
            except RefreshError as error:
                problems.append(str(error))
                continue
            if known.get(model) != version:
                known[model] = version
                # Conditions take no notice of an observation of an asset that Dagster never makes.
                events.append(
                    dg.AssetMaterialization(
                        dg.AssetKey.from_user_string(model),
                        description=f"Version {version} of the table",
                        metadata={"location": str(table.location), "version": version},
                        tags={"dagster/data_version": version},
                    )
                )
        new = ", ".join(event.asset_key.to_user_string() for event in events)
        # It requests no runs itself; without a reason, Dagster would speak of an empty result.
        told = f"Reported new versions of {new}" if new else "No table has a new version"
        told = "\n".join([*problems, told])
        return dg.SensorResult(asset_events=events, cursor=json.dumps(known), skip_reason=told)

    return [lake_versions] if tables else []


def triggers_of(datasources: Sequence[PublishedDatasource]) -> dg.Definitions:
    """Return the sensors and schedules of these data sources, with their jobs.

    One sensor for all `{after: ...}`, one schedule for each data source with `cron`, one sensor
    for each distinct file of `dbt`, one for all tables of lakes.
    """
    # A sensor for each could be switched alone, at four times the cost (benchmarks/RESULTS.md).
    after_models = dg.AutomationConditionSensorDefinition(
        "refresh_after_models",
        target=dg.AssetSelection.all(),
        default_status=default_status(dg.DefaultSensorStatus),
        description="Refreshes data sources when their models are new, and retries failed "
        "refreshes. It is off until it is switched on: here, or for a deployment by "
        "PIPELINE_TRIGGERS=on.",
    )
    schedules = refresh_schedules(datasources)
    return dg.Definitions(
        sensors=[after_models, *dbt_sensors(datasources), *lake_sensors(datasources)],
        schedules=schedules,
        # Of a job that only schedules name, Dagster makes a copy for each, and refuses two.
        jobs=[each.job for each in schedules[:1]],
    )


def next_refreshes(
    definitions: dg.Definitions, instance: dg.DagsterInstance
) -> Callable[[PublishedDatasource], str]:
    """Return a function that says what refreshes a data source next."""
    sensors = definitions.sensors or ()
    names = _on(instance, (*(definitions.schedules or ()), *sensors))
    follow = any(
        each.name in names
        for each in sensors
        if isinstance(each, dg.AutomationConditionSensorDefinition)
    )

    def said(datasource: PublishedDatasource) -> str:
        match datasource.trigger:
            case CronTrigger(cron, zone):
                tick = get_next_cron_tick(cron, datetime.now(UTC), zone).astimezone()
                what, is_on = f"{tick:%Y-%m-%d %H:%M}", schedule_name(datasource) in names
            case AfterTrigger(after):
                what, is_on = f"after {after} of its models", follow
            case DbtTrigger(file):
                what, is_on = "after dbt", _dbt_name(file) in names
            case None:
                return "by hand"
        return what if is_on else f"off: {what}"

    return said
