"""Where the `updatedAt` that a job gives to a data source lies relative to the time of the job."""

from datetime import timedelta

from tableau_pipeline.sandbox.clock import moment_of, stamp
from tableau_pipeline.sandbox.open_questions import JobStamps
from tableau_pipeline.sandbox.services import Services
from tableau_pipeline.sandbox.store import datasources
from tableau_pipeline.sandbox.store.records import Datasource


def stamp_job(services: Services, changed: Datasource) -> str:
    """Move the `updatedAt` of what a job has changed out of its time, if it is to lie after it.

    Returns:
        When the change took effect; the job is not completed before.
    """
    if services.options.job_stamps is JobStamps.AFTER:
        late = timedelta(seconds=services.options.late_seconds)
        after = stamp(moment_of(changed.updated_at) + late)
        datasources.set_updated_at(services.database, changed.luid, after)
    return changed.updated_at
