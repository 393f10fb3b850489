"""Store jobs, their queue, and the requests that queued jobs."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tableau_sandbox.identity import new_luid
from tableau_sandbox.store.database import Database
from tableau_sandbox.store.records import Job

PENDING = "Pending"
IN_PROGRESS = "InProgress"
SUCCESS = "Success"
FAILED = "Failed"
CANCELLED = "Cancelled"
_REMEMBERED_SECONDS = 24 * 3600


def add_job(
    database: Database,
    *,
    site: str,
    user: str,
    kind: str,
    title: str,
    parameters: dict[str, Any],
    created_at: str,
) -> Job:
    """Queue a job."""
    luid = new_luid()
    with database.transaction():
        database.add(
            "job",
            luid=luid,
            site=site,
            user=user,
            kind=kind,
            title=title,
            payload=json.dumps(parameters),
            status=PENDING,
            created_at=created_at,
        )
        (added,) = database.all(Job, luid=luid)
    return added


def latest_jobs(database: Database, site: str, *, most: int = -1) -> list[Job]:
    """Return the jobs of a site, newest first; at most `most` jobs, or all by default."""
    return database.records(Job, "WHERE site = ? ORDER BY number DESC LIMIT ?", site, most)


def unfinished_jobs(database: Database) -> list[Job]:
    """Return the jobs of all sites that are queued or in progress, oldest first."""
    return database.all(Job, completed_at=None)


def start_next_job(
    database: Database, *, started_at: str, choose: Callable[[], Job | None]
) -> Job | None:
    """Start the queued job that `choose` returns. The queue does not change during the call."""
    with database.transaction():
        job = choose()
        if job is None:
            return None
        # The job may have been created after the time that the caller has read.
        started_at = max(started_at, job.created_at)
        sql = "UPDATE job SET status = ?, started_at = ? WHERE luid = ?"
        database.change(sql, IN_PROGRESS, started_at, job.luid)
    return replace(job, status=IN_PROGRESS, started_at=started_at)


def finish_job(
    database: Database, luid: str, *, status: str, completed_at: str, notes: str | None = None
) -> bool:
    """End a job that has not ended; return whether this call ended the job."""
    sql = (
        "UPDATE job SET status = ?, completed_at = ?, notes = ?"
        " WHERE luid = ? AND completed_at IS NULL"
    )
    return database.change(sql, status, completed_at, notes, luid) > 0


def complete_at(database: Database, luid: str, moment: str) -> None:
    """Move the completion of a finished job to this time if this time is later."""
    sql = "UPDATE job SET completed_at = max(completed_at, ?) WHERE luid = ?"
    database.change(sql, moment, luid)


def first_job(database: Database, *, site: str, request_id: str, now: float) -> Job | None:
    """Return the job that a request with this id has queued in the last 24 hours, or None."""
    found = database.records(
        Job,
        "JOIN data_request ON job = luid"
        " WHERE data_request.site = ? AND request_id = ? AND received_at > ?",
        site,
        request_id,
        now - _REMEMBERED_SECONDS,
    )
    return next(iter(found), None)


def remember_request(
    database: Database, *, site: str, request_id: str, job: str, now: float
) -> None:
    """Record that a request has queued a job, and remove expired records."""
    forgotten = now - _REMEMBERED_SECONDS
    database.change("DELETE FROM data_request WHERE received_at <= ?", forgotten)
    database.add("data_request", site=site, request_id=request_id, job=job, received_at=now)
