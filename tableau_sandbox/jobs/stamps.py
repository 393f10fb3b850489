"""Whether the `updatedAt` that a job sets lies within the time of the job or after it."""

from datetime import timedelta

from tableau_sandbox.clock import moment_of, stamp
from tableau_sandbox.quirks import JobStamps
from tableau_sandbox.services import Services
from tableau_sandbox.store import datasources
from tableau_sandbox.store.records import Datasource


def stamp_job(services: Services, changed: Datasource) -> str:
    """Move the `updatedAt` of a changed data source behind the job, if the options require it.

    Returns:
        The stamp of the change; the job is not completed before it.
    """
    if services.options.job_stamps is JobStamps.AFTER:
        late = timedelta(seconds=services.options.late_stamp_seconds)
        after = stamp(moment_of(changed.updated_at) + late)
        datasources.set_updated_at(services.database, changed.luid, after)
    return changed.updated_at
