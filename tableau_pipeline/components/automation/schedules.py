"""Schedules of the data sources with a cron trigger."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from zlib import crc32

import dagster as dg

from tableau_pipeline.components.asset_keys import extract_key
from tableau_pipeline.components.attributes.triggers import CronTrigger
from tableau_pipeline.components.automation.default_status import schedule_status
from tableau_pipeline.components.published_datasource.component import PublishedDatasource


def refresh_schedules(datasources: Iterable[PublishedDatasource]) -> list[dg.ScheduleDefinition]:
    """Return one schedule and job for each distinct cron and time zone.

    Data sources share schedules because Dagster resolves every job against all assets.
    """
    due: dict[tuple[str, str], list[dg.AssetKey]] = defaultdict(list)
    for datasource in datasources:
        if isinstance(trigger := datasource.trigger, CronTrigger):
            due[trigger.cron, trigger.timezone] += [
                # One step makes both assets, and Dagster refuses to run half of it.
                extract_key(datasource.declaration.key),
                dg.AssetKey.from_user_string(datasource.asset_key),
            ]
    names = Counter(_name(cron, zone) for cron, zone in due)
    return [
        _schedule(
            _name(cron, zone) + (_suffix(cron, zone) if names[_name(cron, zone)] > 1 else ""),
            cron,
            zone,
            keys=keys,
        )
        for (cron, zone), keys in due.items()
    ]


def _name(cron: str, zone: str) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "_", cron.replace("*", "x").replace("/", " per "))
    return f"refresh_at_{words}_{re.sub(r'[^A-Za-z0-9]+', '_', zone)}"


def _suffix(cron: str, zone: str) -> str:
    """Return a suffix that separates names with equal words: "1-5" and "1,5", GMT+1 and GMT-1."""
    return f"_{crc32(f'{cron} {zone}'.encode()):08x}"


def _schedule(name: str, cron: str, zone: str, *, keys: list[dg.AssetKey]) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=name,
        job=dg.define_asset_job(f"{name}_job", selection=dg.AssetSelection.assets(*keys)),
        cron_schedule=cron,
        execution_timezone=zone,
        default_status=schedule_status(),
        description=f"Refreshes the data sources due at {cron} ({zone}).",
    )
