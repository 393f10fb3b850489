"""The sensors and schedules of a code location."""

import dagster as dg

from tableau_pipeline.components.automation.dbt_sensors import dbt_sensors
from tableau_pipeline.components.automation.default_status import sensor_status
from tableau_pipeline.components.automation.lake_sensor import lake_sensors
from tableau_pipeline.components.automation.schedules import refresh_schedules
from tableau_pipeline.components.published_datasource.component import PublishedDatasource


@dg.definitions
def automation(context: dg.ComponentLoadContext) -> dg.Definitions:
    """Return the triggers of the declared data sources. Import it in a module under `defs/`.

    One sensor for all `{after: ...}`, one schedule for each distinct `cron`, one sensor for each
    distinct file of `dbt`, one for all tables of lakes.
    """
    datasources = context.component_tree.get_all_components(of_type=PublishedDatasource)
    after_models = dg.AutomationConditionSensorDefinition(
        "refresh_after_models",
        target=dg.AssetSelection.all(),
        default_status=sensor_status(),
        description="Refreshes data sources when their models are new, and retries failed "
        "refreshes. It is off until it is switched on: here, or for a deployment by "
        "PIPELINE_TRIGGERS=on.",
    )
    return dg.Definitions(
        sensors=[after_models, *dbt_sensors(datasources), *lake_sensors(datasources)],
        schedules=refresh_schedules(datasources),
    )
