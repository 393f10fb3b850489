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
        (added,) = database.all(Job, luid=luid)
    return added


def latest_jobs(database: Database, site: str, *, most: int = -1) -> list[Job]:
    """Return the jobs of a site, newest first; all, or the first `most`."""
    return database.records(Job, "WHERE site = ? ORDER BY number DESC LIMIT ?", site, most)


def unfinished_jobs(database: Database) -> list[Job]:
    """Return the jobs of all sites that are queued or in progress, oldest first."""
    return database.all(Job, completed_at=None)


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
        found = [job for kind in kinds for job in self._database.records(Job, rest, PENDING, kind)]
        return min(found, key=lambda job: job.number, default=None)

    def random(self, kinds: Iterable[str]) -> Job | None:
        """Return a random queued job of these kinds; this one looks at the numbers of all."""
        numbers = [number for kind in kinds for number in self.after(0, kind=kind)]
        return self._database.find(Job, number=random.choice(numbers)) if numbers else None  # noqa: S311

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
        sql = "UPDATE job SET status = ?, started_at = ? WHERE luid = ?"
        database.change(sql, IN_PROGRESS, started_at, job.luid)
    return replace(job, status=IN_PROGRESS, started_at=started_at)


def finish_job(
    database: Database, luid: str, *, status: str, completed_at: str, notes: str | None = None
) -> bool:
    """End a job, unless it has already ended; return whether this call ended it."""
    sql = (
        "UPDATE job SET status = ?, completed_at = ?, notes = ?"
        " WHERE luid = ? AND completed_at IS NULL"
    )
    return database.change(sql, status, completed_at, notes, luid) > 0


def complete_at(database: Database, luid: str, moment: str) -> None:
    """Move the completion of a finished job to this time, if that is later."""
    sql = "UPDATE job SET completed_at = max(completed_at, ?) WHERE luid = ?"
    database.change(sql, moment, luid)


def first_job(database: Database, *, site: str, request_id: str, now: float) -> Job | None:
    """Return the job of the request with this id, if it is less than 24 hours old."""
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
