"""Jobs, their queue, and the requests that queued them."""

import json
import random
from collections.abc import Callable, Iterable
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
        (added,) = database.records(Job, "WHERE luid = ?", luid)
    return added


def jobs(database: Database, site: str, *, most: int | None = None) -> list[Job]:
    """Return the jobs of a site, newest first; all, or the first `most`."""
    # SQLite takes a limit below zero for none.
    limit = -1 if most is None else most
    return database.records(Job, "WHERE site = ? ORDER BY number DESC LIMIT ?", site, limit)


def job(database: Database, site: str, luid: str) -> Job | None:
    """Return the job with this LUID."""
    return database.record(Job, "WHERE site = ? AND luid = ?", site, luid)


def unfinished_jobs(database: Database) -> list[Job]:
    """Return the jobs of all sites that are queued or in progress, oldest first."""
    return database.records(Job, "WHERE status IN (?, ?) ORDER BY number", PENDING, IN_PROGRESS)


def unfinished_job_of(database: Database, datasource: str, *, kind: str) -> bool:
    """Whether a job of a kind with this data source is queued or in progress."""
    # Written as in the index `unfinished_job`, without which this reads all jobs.
    found = database.row(
        "SELECT 1 FROM job WHERE completed_at IS NULL AND kind = ?"
        " AND json_extract(payload, '$.datasource.id') = ?",
        kind,
        datasource,
    )
    return found is not None


class JobQueue:
    """The queued jobs of all sites; no question costs more because many are queued.

    Attributes:
        kinds: the kinds of all jobs.
    """

    def __init__(self, database: Database, kinds: Iterable[str]):
        self.kinds = frozenset(kinds)
        self._database = database

    def oldest(self, kinds: Iterable[str]) -> Job | None:
        """Return the oldest queued job of these kinds."""
        # One query for each kind: within a kind, the index has the jobs in their order.
        rest = "WHERE status = ? AND kind = ? ORDER BY number LIMIT 1"
        found = (self._database.record(Job, rest, PENDING, kind) for kind in kinds)
        return min(filter(None, found), key=lambda job: job.number, default=None)

    def random(self, kinds: Iterable[str]) -> Job | None:
        """Return a random queued job of these kinds; this one looks at the numbers of all."""
        numbers = [number for kind in kinds for number in self.after(0, kind=kind)]
        if not numbers:
            return None
        return self._database.record(Job, "WHERE number = ?", random.choice(numbers))  # noqa: S311

    def after(self, number: int, *, kind: str) -> list[int]:
        """Return the numbers of the queued jobs of a kind that are newer than `number`."""
        sql = "SELECT number FROM job WHERE status = ? AND kind = ? AND number > ?"
        return [row["number"] for row in self._database.rows(sql, PENDING, kind, number)]


def start_next_job(
    database: Database, *, started_at: str, choose: Callable[[], Job | None]
) -> Job | None:
    """Start the queued job that `choose` returns; the queue does not change meanwhile."""
    with database.transaction():
        job = choose()
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


def first_job(database: Database, *, site: str, request_id: str, now: float) -> str | None:
    """Return the LUID of the job of the request with this id, if it is less than 24 hours old."""
    row = database.row(
        "SELECT job FROM data_request WHERE site = ? AND request_id = ? AND received_at > ?",
        site,
        request_id,
        now - _REMEMBERED_SECONDS,
    )
    return row["job"] if row else None


def remember_request(
    database: Database, *, site: str, request_id: str, job: str, now: float
) -> None:
    """Record that a request has queued a job, and remove expired records."""
    forgotten = now - _REMEMBERED_SECONDS
    database.change("DELETE FROM data_request WHERE received_at <= ?", forgotten)
    database.add("data_request", site=site, request_id=request_id, job=job, received_at=now)
