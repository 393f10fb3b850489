from xml.etree.ElementTree import Element

from starlette.responses import Response

from tableau_sandbox.errors import RestError, not_found, refusal
from tableau_sandbox.jobs.kinds import KINDS, PUBLISH, UPDATE
from tableau_sandbox.rest.answers import Reply, background_job_element, job_element
from tableau_sandbox.rest.lists import Field, list_page, number_field, text_field, time_field
from tableau_sandbox.rest.requests import Call
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store import jobs
from tableau_sandbox.store.records import Job

_OTHER_WORDS = {PUBLISH: "upload_datasource", UPDATE: "apply_data_changes"}
_FIELDS: dict[str, Field[Job]] = {
    "status": text_field(lambda job: job.status),
    "jobType": text_field(lambda job: job.kind),
    "progress": number_field(lambda job: 100 if job.completed_at else 0),
    "createdAt": time_field(lambda job: job.created_at),
    "startedAt": time_field(lambda job: job.started_at),
    "completedAt": time_field(lambda job: job.completed_at),
    "title": text_field(lambda job: job.title, operators=("eq", "has")),
    "subtitle": text_field(lambda job: None, operators=("eq", "has")),
    "notes": text_field(lambda job: job.notes, operators=("has",)),
    "args": text_field(lambda job: job.payload, operators=("has",)),
}


def query_jobs(services: Services, call: Call) -> Reply:
    """List the jobs of a site, newest first. Only administrators may list jobs."""
    if not call.user.is_admin:
        raise refusal("403004", "Only administrators may list the jobs of a site.")
    options = services.options
    found = jobs.latest_jobs(services.database, call.site.luid)
    if options.finished_jobs == "gone":
        found = [job for job in found if not job.completed_at]

    def write(job: Job) -> Element:
        word = _OTHER_WORDS.get(job.kind, job.kind) if options.job_words == "unknown" else job.kind
        return background_job_element(
            job, word=word, title=job.title if options.job_titles else None
        )

    return list_page(found, call.query, name="backgroundJobs", write=write, fields=_FIELDS)


def get_job(services: Services, call: Call) -> Reply:
    """Return a job to administrators and, by the option `job_access`, to the user who queued it."""
    return _reply(services, _job(services, call), status=200)


def accepted(services: Services, job: Job, *, progress: bool = True) -> Reply:
    """Return the answer to a request that has queued a job, optionally with the job's progress."""
    return _reply(services, job, status=202, progress=progress)


def _reply(services: Services, job: Job, *, status: int, progress: bool = True) -> Reply:
    early = services.options.finish_code_of_unfinished(is_publish=job.kind == PUBLISH)
    kind = KINDS[job.kind]
    has_error_note = services.options.failed_jobs == "error-note"
    element = job_element(
        job, kind=kind, early_finish_code=early, progress=progress, has_error_note=has_error_note
    )
    return Reply(status, element)


def cancel_job(services: Services, call: Call) -> Response:
    """Cancel a job that has not taken effect yet."""
    # Hold the lock: the job's status must not change between the check and the cancellation.
    with services.database.transaction():
        job = _job(services, call)
        cancelled = jobs.finish_job(
            services.database,
            job.luid,
            status=jobs.CANCELLED,
            completed_at=services.now(),
            notes="The job was cancelled.",
        )
    if not cancelled:
        raise refusal("403091", f"The job '{job.luid}' is already complete.")
    # If a job has started, the worker removes its files, because it may still read them.
    if job.status == jobs.PENDING:
        KINDS[job.kind].clean_up(services, job)
    return Response(status_code=200)


def _job(services: Services, call: Call) -> Job:
    luid, allowed = call.path["job"], services.options.job_access
    # A user without the right to query jobs gets this answer even if the job does not exist.
    if allowed != "own-jobs" and not call.user.is_admin:
        if allowed == "session-lost":
            raise RestError("401002", "Unauthorized Access", "Invalid authentication credentials.")
        raise refusal("403004", "Only administrators may ask for jobs.")
    job = services.known(Job, luid, site=call.site.luid, code="404018")
    if services.options.finished_jobs == "gone" and job.completed_at:
        raise not_found("Job", luid, code="404018")
    if job.user != call.user.luid and not call.user.is_admin:
        raise refusal("403004", "The job belongs to another user.")
    return job


_JOBS, _JOB = "sites/{site}/jobs", "sites/{site}/jobs/{job}"
ROUTES = (
    Route("GET", _JOBS, query_jobs, ("tableau:jobs:read",)),
    Route("GET", _JOB, get_job, ("tableau:jobs:read",)),
    # The known lists of scopes omit this scope, but clients that cancel jobs request it.
    Route("PUT", _JOB, cancel_job, ("tableau:jobs:update",)),
)
