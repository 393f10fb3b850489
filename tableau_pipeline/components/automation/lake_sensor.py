"""The sensor that reports new versions of the tables of lakes."""

import json
from collections.abc import Iterable, Mapping

import dagster as dg

from tableau_pipeline.components.automation.default_status import sensor_status
from tableau_pipeline.components.published_datasource.component import PublishedDatasource
from tableau_pipeline.core.declaration import LakeTable
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.lake.current_version import current_version

_DATA_VERSION = "dagster/data_version"


def lake_sensors(datasources: Iterable[PublishedDatasource]) -> list[dg.SensorDefinition]:
    """Return one sensor for all tables of lakes; none if there are no such tables."""
    tables = {
        table.model: table.source
        for datasource in datasources
        for table in datasource.declaration.tables
        if table.source
    }
    return [_sensor(tables)] if tables else []


def _sensor(tables: Mapping[str, LakeTable]) -> dg.SensorDefinition:
    @dg.sensor(
        name="new_versions_of_lake_tables",
        minimum_interval_seconds=60,
        default_status=sensor_status(),
        description=f"Reports new versions of {', '.join(sorted(tables))}, on which triggers and "
        "the lineage rest.",
    )
    def lake_versions(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
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
                events.append(_event(model, table, version))
        for problem in problems:
            context.log.warning(problem)
        if not events:
            return dg.SkipReason("\n".join(problems) or "No table has a new version")
        # It requests no runs itself; without a reason, Dagster would speak of an empty result.
        new = ", ".join(event.asset_key.to_user_string() for event in events)
        return dg.SensorResult(
            asset_events=events,
            cursor=json.dumps(known),
            skip_reason=f"Reported new versions of {new}",
        )

    return lake_versions


def _event(model: str, table: LakeTable, version: str) -> dg.AssetMaterialization:
    # Automation conditions take no notice of an observation of an asset that Dagster never makes.
    return dg.AssetMaterialization(
        dg.AssetKey.from_user_string(model),
        description=f"Version {version} of the table",
        metadata={"location": str(table.location), "version": version},
        tags={_DATA_VERSION: version},
    )
