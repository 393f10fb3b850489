"""Sensors of the data sources that follow a dbt outside Dagster."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from zlib import crc32

import dagster as dg

from tableau_pipeline.components.asset_keys import extract_key
from tableau_pipeline.components.attributes.triggers import DbtTrigger
from tableau_pipeline.components.automation.dbt_results import (
    Invocation,
    NotABuildError,
    read_invocation,
)
from tableau_pipeline.components.automation.default_status import sensor_status
from tableau_pipeline.components.published_datasource.component import PublishedDatasource

_TAG = "dbt/invocation_id"


def dbt_sensors(datasources: Iterable[PublishedDatasource]) -> list[dg.SensorDefinition]:
    """Return one sensor, with its job, for each distinct run_results.json, read once per tick."""
    followers: dict[str, dict[str, DbtTrigger]] = defaultdict(dict)
    for datasource in datasources:
        if isinstance(trigger := datasource.trigger, DbtTrigger):
            followers[trigger.dbt][datasource.asset_key] = trigger
    return [_sensor(file, triggers) for file, triggers in followers.items()]


def _sensor(file: str, triggers: Mapping[str, DbtTrigger]) -> dg.SensorDefinition:
    words = re.sub(r"[^A-Za-z0-9]+", "_", file).strip("_")
    # Two paths may yield the same words, and Dagster keeps a sensor's cursor under its name.
    name = f"refresh_after_dbt_{words[-60:]}_{crc32(file.encode()):08x}"
    job = dg.define_asset_job(f"{name}_job", selection=_with_models(triggers))

    @dg.sensor(
        name=name,
        job=job,
        default_status=sensor_status(),
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
        due = [key for key, obstacle in obstacles.items() if not obstacle]
        if not due:
            # The cursor moves on all the same, or every tick would judge this invocation again.
            return dg.SensorResult(skip_reason="\n".join(skipped), cursor=invocation.id)
        # A tick that requests runs shows no skip reason, so its log lists what was left out.
        for reason in skipped:
            context.log.warning(reason)
        return dg.SensorResult(
            run_requests=[_request(context, key, invocation) for key in due], cursor=invocation.id
        )

    return after_dbt


def _with_models(datasources: Iterable[str]) -> dg.AssetSelection:
    keys = (
        key
        for datasource in datasources
        for key in (extract_key(datasource), dg.AssetKey.from_user_string(datasource))
    )
    # The models' own sources are often tables of dbt, which no run of this location can make.
    return dg.AssetSelection.assets(*keys).upstream().materializable()


def _request(
    context: dg.SensorEvaluationContext, datasource: str, invocation: Invocation
) -> dg.RunRequest:
    """Request a run of the data source and its models.

    Partitioned models are left out: dbt does not report which partition is new.
    """
    if not (location := context.repository_def):
        raise ValueError("the sensor's context has no definitions to choose assets from")
    graph = location.asset_graph
    return dg.RunRequest(
        # Dagster runs each key once, so a sensor whose cursor was reset does not repeat a refresh.
        run_key=f"{invocation.id} {datasource}",
        asset_selection=[
            key
            for key in _with_models([datasource]).resolve(graph)
            if not graph.get(key).is_partitioned
        ],
        tags={_TAG: invocation.id},
    )
