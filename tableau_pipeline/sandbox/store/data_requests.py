from tableau_pipeline.sandbox.store.database import Database

REMEMBERED_SECONDS = 24 * 3600


def first_job(database: Database, *, site: str, request_id: str, now: float) -> str | None:
    """The LUID of the job that a request of this identifier began within the last 24 hours."""
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
    """Note that a request has begun a job; what is too old to count is forgotten."""
    forgotten = now - REMEMBERED_SECONDS
    database.change("DELETE FROM data_request WHERE received_at <= ?", forgotten)
    database.change(
        "INSERT INTO data_request (site, request_id, job, received_at) VALUES (?, ?, ?, ?)",
        site,
        request_id,
        job,
        now,
    )
