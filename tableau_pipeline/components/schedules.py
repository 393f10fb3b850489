"""Schedules of the data sources that are refreshed at fixed times."""

import re
from collections import defaultdict
from collections.abc import Iterable

import dagster as dg

from tableau_pipeline.components.deployment import schedule_status
from tableau_pipeline.components.keys import extract_key
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.components.trigger_attributes import CronTrigger


def refresh_schedules(datasources: Iterable[PublishedDatasource]) -> list[dg.ScheduleDefinition]:
    """One schedule and job for each distinct cron and time zone.

    Not one for each data source: Dagster resolves every job against all assets.
    """
    due: dict[tuple[str, str], list[dg.AssetKey]] = defaultdict(list)
    for datasource in datasources:
        if isinstance(trigger := datasource.trigger, CronTrigger):
            due[trigger.cron, trigger.timezone] += [
                extract_key(datasource.declaration.key),
                dg.AssetKey.from_user_string(datasource.asset_key),
            ]
    return [_schedule(cron, zone, keys) for (cron, zone), keys in due.items()]


def _schedule(cron: str, zone: str, keys: list[dg.AssetKey]) -> dg.ScheduleDefinition:
    words = re.sub(r"[^A-Za-z0-9]+", "_", cron.replace("*", "x").replace("/", " per "))
    name = f"refresh_at_{words}_{re.sub(r'[^A-Za-z0-9]+', '_', zone)}"
    return dg.ScheduleDefinition(
        name=name,
        job=dg.define_asset_job(f"{name}_job", selection=dg.AssetSelection.assets(*keys)),
        cron_schedule=cron,
        execution_timezone=zone,
        default_status=schedule_status(),
        description=f"Refreshes the data sources due at {cron} ({zone}).",
    )
