"""Find, list and cancel the jobs of a server."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import tableauserverclient as TSC

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.server import Job
from tableau_pipeline.publishing.lookup import every, same_name

_NOT_FOUND = {"400031", "404018"}
_FORBIDDEN = "403"
_FINISHED = {
    TSC.JobItem.FinishCode.Success: Outcome.DONE,
    TSC.JobItem.FinishCode.Completed: Outcome.DONE,
    TSC.JobItem.FinishCode.Cancelled: Outcome.CANCELLED,
}
_OUTCOMES = {
    TSC.BackgroundJobItem.Status.Success: Outcome.DONE,
    TSC.BackgroundJobItem.Status.Failed: Outcome.FAILED,
    TSC.BackgroundJobItem.Status.Cancelled: Outcome.CANCELLED,
}
# Tableau spells this kind UpdateUploadedFile or update_uploaded_file, depending on the call.
_KINDS: dict[str, Literal["update", "publish"]] = {
    "updateuploadedfile": "update",
    "publishdatasource": "publish",
}


def find_job(server: TSC.Server, job_id: str) -> Job | None:
    """Return a job; None if the server no longer knows it, or hides it from this user."""
    try:
        job = server.jobs.get_by_id(job_id)
    except TSC.ServerResponseError as error:
        if error.code in _NOT_FOUND or error.code.startswith(_FORBIDDEN):
            return None
        raise
    return Job(
        id=job_id,
        outcome=_outcome(job),
        notes=" ".join(_notes(job)),
        created_at=job.created_at,
        started_at=job.started_at,
        completed_at=job.completed_at,
    )


def jobs_on(server: TSC.Server, *, name: str, since: datetime) -> Sequence[Job] | None:
    """List publishes and data updates of data sources with this name; None if not permitted."""
    options = TSC.RequestOptions()
    options.filter.add(
        TSC.Filter(
            TSC.RequestOptions.Field.CreatedAt,
            TSC.RequestOptions.Operator.GreaterThanOrEqual,
            since,
        )
    )
    try:
        found = list(every(server.jobs, options))
    except TSC.ServerResponseError as error:
        if error.code.startswith(_FORBIDDEN):
            return None
        raise
    return [
        Job(str(job.id), _OUTCOMES.get(job.status), kind, created_at=job.created_at)
        for job in found
        if (kind := _KINDS.get((job.type or "").replace("_", "").casefold()))
        # Some names cannot be written in a filter, so titles are compared here.
        and same_name(job.title, name)
    ]


def _notes(job: TSC.JobItem) -> list[str]:
    """Return the server's notes: those of publishes are of another kind than those of updates."""
    # Older releases of the client do not read the other kind.
    others = [note.get("text") or note.get("value") for note in getattr(job, "status_notes", [])]
    return [note for note in (*job.notes, *others) if note]


def _outcome(job: TSC.JobItem) -> Outcome | None:
    # Some servers report a finish code before the job has ended.
    if job.completed_at is None:
        return None
    # A code that is not known here must not pass for success.
    return _FINISHED.get(job.finish_code, Outcome.FAILED)
