"""Refresh an extract: the job changes nothing, as the sandbox cannot reach the database."""

from tableau_sandbox.jobs.kinds import Commit, JobFailedError, JobKind
from tableau_sandbox.services import Services
from tableau_sandbox.store import datasources, jobs
from tableau_sandbox.store.records import Datasource, Job

KIND = "refresh_extracts"
_NOTES = "The sandbox cannot reach the database behind the extract; the data stay as they are."


def queue_refresh(services: Services, datasource: Datasource, *, user: str) -> Job | None:
    """Queue a refresh; return None if one is already queued or in progress."""
    with services.database.transaction():
        if jobs.unfinished_job_of(services.database, datasource.luid, kind=KIND):
            return None
        return jobs.add_job(
            services.database,
            site=datasource.site,
            user=user,
            kind=KIND,
            title=datasource.name,
            parameters={"datasource": {"id": datasource.luid, "name": datasource.name}},
            created_at=services.now(),
        )


def _prepare(services: Services, job: Job) -> Commit:
    def take_effect() -> None:
        luid = job.parameters["datasource"]["id"]
        if datasources.datasource(services.database, job.site, luid) is None:
            raise JobFailedError(f"The data source '{job.title}' was deleted.")
        jobs.add_notes(services.database, job.luid, _NOTES)

    return take_effect


def _clean_up(services: Services, job: Job) -> None:
    """Do nothing: this job has no files."""


REFRESH = JobKind(
    "RefreshExtract",
    prepare=_prepare,
    clean_up=_clean_up,
    detail="extractRefreshJob",
    notes_first=True,
)
