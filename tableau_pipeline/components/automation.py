"""Build the sensors and schedules that refresh the data sources of a code location."""

import json
from collections.abc import Callable, Iterable, Sequence, Set
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


def scheduled_assets(datasource: PublishedDatasource, graph: BaseAssetGraph) -> Set[dg.AssetKey]:
    """Return the keys of the assets that the schedule of a data source runs.

    Raises:
        DeclarationError: the declaration requires the models to run first, but that is impossible.
    """
    if not runs_models(datasource):
        # One step makes the data source and its extract. Dagster cannot run a part of a step.
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
    """Whether the schedule of a data source runs its models first."""
    return isinstance(datasource.trigger, CronTrigger) and datasource.trigger.upstream


def refresh_schedules(datasources: Iterable[PublishedDatasource]) -> list[dg.ScheduleDefinition]:
    """Return a schedule for each data source with a `cron`.

    All schedules share one job, because Dagster takes time to resolve each job against all assets.
    """
    timed = [item for item in datasources if isinstance(item.trigger, CronTrigger)]

    def scheduled(graph: BaseAssetGraph) -> Set[dg.AssetKey]:
        return {key for datasource in timed for key in scheduled_assets(datasource, graph)}

    job = dg.define_asset_job(
        "tableau_at_fixed_times",
        selection=AssetSelectionByGraph(scheduled),
        description="The job of the schedules: each schedule runs its own part.",
    )
    return [_schedule(datasource, timed, job) for datasource in timed]


def schedule_name(datasource: PublishedDatasource) -> str:
    """Return the name of the schedule of a data source with a `cron`."""
    return f"refresh_{datasource.key.replace('/', '__')}"


def _schedule(
    datasource: PublishedDatasource, timed: Sequence[PublishedDatasource], job: Any
) -> dg.ScheduleDefinition:
    trigger: Any = datasource.trigger
    together = [item for item in timed if runs_models(item) and item.trigger == trigger]

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
        # Data sources with the same time may share models. Refresh them in a single run, which runs
        # each model once.
        names = switched_on(context.instance, location.schedule_defs) if len(together) > 1 else ()
        on = [item for item in together if schedule_name(item) in names]
        at_once = on if datasource in on else [datasource]
        if at_once[0] is not datasource:
            return dg.SkipReason(
                f'The schedule {schedule_name(at_once[0])} runs the models of "{datasource.name}" '
                "at the same time, so its run refreshes both"
            )
        keys = {key for item in at_once for key in scheduled_assets(item, location.asset_graph)}
        return dg.RunRequest(asset_selection=sorted(keys))

    return at_fixed_times


def lake_sensors(datasources: Iterable[PublishedDatasource]) -> list[dg.SensorDefinition]:
    """Return one sensor for all lake tables; [] if no model is a lake table."""
    # Distinguish tables by location, too, because two data sources may use the same model key for
    # different tables.
    tables = {
        f"{table.model}: {table.source.format} {table.source.location}": (table.model, table.source)
        for datasource in datasources
        for table in datasource.tables
        if table.source
    }
    models = sorted({model for model, _ in tables.values()})

    @dg.sensor(
        name="new_versions_of_lake_tables",
        minimum_interval_seconds=60,
        default_status=default_status(dg.DefaultSensorStatus),
        description=f"Reports new versions of {', '.join(models)} to Dagster, for triggers "
        "and the lineage.",
    )
    def lake_versions(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        reported: dict[str, str] = json.loads(context.cursor or "{}")
        # Forget tables that are no longer declared.
        versions = {name: number for name, number in reported.items() if name in tables}
        events, problems = [], []
        for name, (model, table) in tables.items():
            try:
                version = current_version(table)
            except RefreshError as error:
                problems.append(str(error))
                continue
            if versions.get(name) != version:
                versions[name] = version
                # Report a materialization, not an observation. Automation conditions ignore the
                # observations of an asset that Dagster never makes.
                events.append(
                    dg.AssetMaterialization(
                        dg.AssetKey.from_user_string(model),
                        description=f"Version {version} of the table",
                        metadata={"location": str(table.location), "version": version},
                        tags={"dagster/data_version": version},
                    )
                )
        new = ", ".join(event.asset_key.to_user_string() for event in events)
        # This sensor requests no runs. Without a skip reason, Dagster would report an empty result.
        result = f"Reported new versions of {new}" if new else "No table has a new version"
        reason = "\n".join([*problems, result])
        return dg.SensorResult(asset_events=events, cursor=json.dumps(versions), skip_reason=reason)

    return [lake_versions] if tables else []


def triggers_of(datasources: Sequence[PublishedDatasource]) -> dg.Definitions:
    """Return the sensors and schedules of these data sources, with their jobs.

    One sensor serves all triggers `{after: ...}`, and another sensor serves the tables of all
    lakes. Each trigger `{cron: ...}` has a schedule. Each distinct file in triggers `{dbt: ...}`
    has a sensor.
    """
    # Use one sensor for all data sources. With a sensor for each data source, users could switch
    # each sensor on or off, but the sensors would take about four times as much processor time
    # (benchmarks/RESULTS.md).
    after_models = dg.AutomationConditionSensorDefinition(
        "refresh_after_models",
        target=dg.AssetSelection.all(),
        default_status=default_status(dg.DefaultSensorStatus),
        description="Refreshes data sources when their models are new, and retries failed "
        "refreshes. It is off until it is switched on: here, or for a deployment by "
        "PIPELINE_TRIGGERS=on.",
    )
    schedules = refresh_schedules(datasources)
    triggers = {datasource.key: datasource.trigger for datasource in datasources}
    return dg.Definitions(
        sensors=[after_models, *dbt_sensors(triggers), *lake_sensors(datasources)],
        schedules=schedules,
        # Without this line, Dagster would copy the job for each schedule, and refuse the copies.
        jobs=[schedule.job for schedule in schedules[:1]],
    )


def describe_next_refresh(
    definitions: dg.Definitions, instance: dg.DagsterInstance
) -> Callable[[PublishedDatasource], str]:
    """Return a function that describes the time or the trigger of a data source's next refresh."""
    sensors = definitions.sensors or ()
    names = switched_on(instance, (*(definitions.schedules or ()), *sensors))
    follows_models = any(
        sensor.name in names
        for sensor in sensors
        if isinstance(sensor, dg.AutomationConditionSensorDefinition)
    )

    def next_refresh(datasource: PublishedDatasource) -> str:
        match datasource.trigger:
            case CronTrigger(cron, zone):
                tick = get_next_cron_tick(cron, datetime.now(UTC), zone).astimezone()
                trigger, is_on = f"{tick:%Y-%m-%d %H:%M}", schedule_name(datasource) in names
            case AfterTrigger(after, every):
                often = f", every {every} at most" if every else ""
                trigger, is_on = f"after {after} of its models{often}", follows_models
            case DbtTrigger(file):
                trigger, is_on = "after dbt", dbt_sensor_name(file) in names
            case None:
                return "by hand"
        return trigger if is_on else f"off: {trigger}"

    return next_refresh
