import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tableau_pipeline.sandbox.identity import new_luid
from tableau_pipeline.sandbox.open_questions import JobOrder
from tableau_pipeline.sandbox.store.database import Database
from tableau_pipeline.sandbox.store.records import Job

PENDING = "Pending"
IN_PROGRESS = "InProgress"
SUCCESS = "Success"
FAILED = "Failed"
CANCELLED = "Cancelled"


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
        database.change(
            "INSERT INTO job (luid, site, user, kind, title, payload, status, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            luid,
            site,
            user,
            kind,
            title,
            json.dumps(parameters),
            PENDING,
            created_at,
        )
        (row,) = database.rows("SELECT * FROM job WHERE luid = ?", luid)
    return Job.of(row)


def jobs(database: Database, site: str) -> list[Job]:
    """Return all jobs of a site, newest first."""
    rows = database.rows("SELECT * FROM job WHERE site = ? ORDER BY number DESC", site)
    return [Job.of(row) for row in rows]


def job(database: Database, site: str, luid: str) -> Job | None:
    """Return the job with this LUID."""
    row = database.row("SELECT * FROM job WHERE site = ? AND luid = ?", site, luid)
    return Job.of(row) if row else None


def unfinished_jobs(database: Database) -> list[Job]:
    """Return the jobs of all sites that are queued or in progress, oldest first."""
    sql = "SELECT * FROM job WHERE status IN (?, ?) ORDER BY number"
    return [Job.of(row) for row in database.rows(sql, PENDING, IN_PROGRESS)]


def start_next_job(
    database: Database,
    *,
    started_at: str,
    order: JobOrder = JobOrder.FIFO,
    choose: Callable[[Sequence[Job]], Job | None],
) -> Job | None:
    """Start the queued job that `choose` picks; it gets them oldest first, or in any order."""
    by = "number" if order is JobOrder.FIFO else "random()"
    with database.transaction():
        rows = database.rows(f"SELECT * FROM job WHERE status = ? ORDER BY {by}", PENDING)  # noqa: S608
        job = choose([Job.of(row) for row in rows]) if rows else None
        if job is None:
            return None
        # The job may be newer than the time that the caller has read.
        started_at = max(started_at, job.created_at)
        database.change(
            "UPDATE job SET status = ?, started_at = ? WHERE luid = ?",
            IN_PROGRESS,
            started_at,
            job.luid,
        )
    return replace(job, status=IN_PROGRESS, started_at=started_at)


def finish_job(
    database: Database, luid: str, *, status: str, completed_at: str, notes: str | None = None
) -> bool:
    """End a job, unless it has already ended; return whether this call ended it."""
    changed = database.change(
        "UPDATE job SET status = ?, completed_at = ?, notes = ?"
        " WHERE luid = ? AND status IN (?, ?)",
        status,
        completed_at,
        notes,
        luid,
        PENDING,
        IN_PROGRESS,
    )
    return changed > 0


def complete_at(database: Database, luid: str, moment: str) -> None:
    """Move the completion of a finished job to this time, if that is later."""
    sql = "UPDATE job SET completed_at = max(completed_at, ?) WHERE luid = ?"
    database.change(sql, moment, luid)


def name_datasource(database: Database, luid: str, *, datasource: str, name: str) -> None:
    """Record the data source that a job has published."""
    with database.transaction():
        for row in database.rows("SELECT payload FROM job WHERE luid = ?", luid):
            about = {"datasource": {"id": datasource, "name": name}}
            payload = json.dumps({**json.loads(row["payload"]), **about})
            database.change("UPDATE job SET payload = ? WHERE luid = ?", payload, luid)


def add_notes(database: Database, luid: str, notes: str) -> None:
    """Add notes to a job that has succeeded."""
    database.change("UPDATE job SET notes = ? WHERE luid = ?", notes, luid)


def fail_unfinished_jobs(database: Database, *, completed_at: str, notes: str) -> None:
    """Fail the jobs that an earlier process has left unfinished."""
    database.change(
        "UPDATE job SET status = ?, completed_at = ?, notes = ? WHERE status IN (?, ?)",
        FAILED,
        completed_at,
        notes,
        PENDING,
        IN_PROGRESS,
    )
