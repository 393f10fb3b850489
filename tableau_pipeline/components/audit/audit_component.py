"""The component Audit: a job and a schedule that compare what is published with the models."""

import dagster as dg
from pydantic import Field

from tableau_pipeline.components.attributes.triggers import Cron
from tableau_pipeline.components.attributes.zones import Zone
from tableau_pipeline.components.audit.audit_job import audit_job
from tableau_pipeline.components.automation.default_status import schedule_status
from tableau_pipeline.components.published_datasource.component import PublishedDatasource
from tableau_pipeline.components.yaml_component.yaml_component import YamlComponent


class Audit(YamlComponent):
    """Compare every data source of this code location with its models, without refreshing it."""

    job: str = Field(
        default="audit",
        pattern=r"^\w+$",
        description="Name of the job; its schedule is <job>_schedule.",
    )
    cron: Cron = Field(
        default="0 4 * * *", description='When it runs: a cron expression, as in "0 4 * * SUN".'
    )
    timezone: Zone = Field(
        default="UTC", description='Time zone of the cron expression: "Europe/Paris".'
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the job and its schedule, for the data sources that this location declares."""
        found = context.component_tree.get_all_components(of_type=PublishedDatasource)
        job = audit_job(self.job, [datasource.declaration for datasource in found])
        schedule = dg.ScheduleDefinition(
            name=f"{self.job}_schedule",
            job=job,
            cron_schedule=self.cron,
            execution_timezone=self.timezone,
            default_status=schedule_status(),
            description="Compares the published data sources with their models.",
        )
        return dg.Definitions(jobs=[job], schedules=[schedule])
