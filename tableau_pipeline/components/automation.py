"""The sensors and schedules of the data sources of a code location."""

import json
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from tableau_pipeline.components.asset_names import asset_keys, with_models
from tableau_pipeline.components.dbt import DbtTrigger, dbt_sensor_name, dbt_sensors
from tableau_pipeline.components.instigators import default_status, switched_on
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.components.triggers import AfterTrigger, CronTrigger
from tableau_pipeline.components.yaml_component import DeclarationError
from tableau_pipeline.dagster_internals import (
    AssetSelectionByGraph,
    BaseAssetGraph,
    get_next_cron_tick,
    not_none,
)
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.lake.tables import current_version


@dataclass(frozen=True)
class _Due(AssetSelectionByGraph):
    """What the schedules of these data sources run; Dagster resolves it as the location loads."""

    datasources: Sequence[PublishedDatasource]

    def chosen(self, graph: BaseAssetGraph) -> Set[dg.AssetKey]:
        """Return the keys of the assets."""
        return {key for datasource in self.datasources for key in due(datasource, graph)}


def due(datasource: PublishedDatasource, graph: BaseAssetGraph) -> Set[dg.AssetKey]:
    """Return what the schedule of a data source runs.

    Raises:
        DeclarationError: it is to run the models first, and no schedule can.
    """
    if not runs_models(datasource):
        # One step makes both assets, and Dagster refuses to run half of it.
        return frozenset(asset_keys(datasource.key))
    keys = with_models([datasource.key]).resolve(graph)
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
        names = switched_on(context.instance, location.schedule_defs) if len(together) > 1 else ()
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
    triggers = {each.key: each.trigger for each in datasources}
    return dg.Definitions(
        sensors=[after_models, *dbt_sensors(triggers), *lake_sensors(datasources)],
        schedules=schedules,
        # Of a job that only schedules name, Dagster makes a copy for each, and refuses two.
        jobs=[each.job for each in schedules[:1]],
    )


def next_refreshes(
    definitions: dg.Definitions, instance: dg.DagsterInstance
) -> Callable[[PublishedDatasource], str]:
    """Return a function that says what refreshes a data source next."""
    sensors = definitions.sensors or ()
    names = switched_on(instance, (*(definitions.schedules or ()), *sensors))
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
                what, is_on = "after dbt", dbt_sensor_name(file) in names
            case None:
                return "by hand"
        return what if is_on else f"off: {what}"

    return said
