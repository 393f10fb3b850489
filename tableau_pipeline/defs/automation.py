"""What happens by itself; all of it is off until switched on in the web UI."""

import dagster as dg

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.schedules import refresh_schedules


@dg.definitions
def automation(context: dg.ComponentLoadContext) -> dg.Definitions:
    """One sensor for `trigger: {after: ...}`, one schedule for each distinct cron."""
    datasources = context.component_tree.get_all_components(of_type=PublishedDatasource)
    return dg.Definitions(
        sensors=[
            dg.AutomationConditionSensorDefinition(
                "refresh_after_models",
                target=dg.AssetSelection.all(),
                default_status=dg.DefaultSensorStatus.STOPPED,
                description="Refreshes data sources when their models are new, and retries.",
            )
        ],
        schedules=refresh_schedules(datasources),
    )
