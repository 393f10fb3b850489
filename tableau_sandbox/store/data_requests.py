from tableau_sandbox.store.database import Database

REMEMBERED_SECONDS = 24 * 3600


def first_job(database: Database, *, site: str, request_id: str, now: float) -> str | None:
    """Return the LUID of the job of the request with this id, if it is less than 24 hours old."""
    row = database.row(
        "SELECT job FROM data_request WHERE site = ? AND request_id = ? AND received_at > ?",
        site,
        request_id,
        now - REMEMBERED_SECONDS,
    )
    return row["job"] if row else None


def remember_request(
    database: Database, *, site: str, request_id: str, job: str, now: float
) -> None:
    """Record that a request has queued a job, and remove expired records."""
    forgotten = now - REMEMBERED_SECONDS
    database.change("DELETE FROM data_request WHERE received_at <= ?", forgotten)
    database.change(
        "INSERT INTO data_request (site, request_id, job, received_at) VALUES (?, ?, ?, ?)",
        site,
        request_id,
        job,
        now,
    )
