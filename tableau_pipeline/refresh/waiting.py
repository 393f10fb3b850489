"""Waiting for a job of the server."""

import logging
import time
from collections.abc import Generator
from dataclasses import replace

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.core.server import JobStatus, Server
from tableau_pipeline.errors import RefreshError

_GROWTH = 1.5
_FIRST_LOOKS = 8


def wait_for_job(
    server: Server,
    job_id: str,
    *,
    timeout: float,
    log: logging.Logger,
    first_pause: float = 2.0,
    longest_pause: float = 60.0,
) -> JobStatus | None:
    """The finished job, or None when the server forgot it. A job that takes too long is cancelled.

    Args:
        timeout: seconds after which it is cancelled; that counts if it is certain.
        first_pause: seconds between two looks, growing up to `longest_pause`. As long as no more
            than that has passed in all, looks are closer: small jobs take no time at all.

    Raises:
        RefreshError: it is not finished in time, and may still take effect.
    """
    started, pauses = time.monotonic(), _pauses(first_pause, longest_pause)
    while True:
        status = server.job(job_id)
        if status is None or status.outcome:
            return status
        waited, pause = time.monotonic() - started, next(pauses)
        left = max(timeout - waited, 0)
        log.info("Waiting for job %s on the server (%.0f s so far)", job_id, waited)
        time.sleep(min(pause, left))
        if pause >= left:
            return _give_up(server, job_id, status, waited=time.monotonic() - started)


def _pauses(first: float, longest: float) -> Generator[float]:
    pause, total = first / _FIRST_LOOKS, 0.0
    while total < first:
        yield pause
        total += pause
        pause *= _GROWTH
    pause = first
    while True:
        yield pause
        pause = min(pause * _GROWTH, longest)


def _give_up(server: Server, job_id: str, last: JobStatus, *, waited: float) -> JobStatus | None:
    if server.cancel(job_id):
        note = f"It was cancelled because it was not finished after {waited:.0f} s."
        return replace(last, outcome=Outcome.CANCELLED, notes=f"{last.notes} {note}".strip())
    # It may have finished just before it could be cancelled.
    status = server.job(job_id)
    if status is None or status.outcome:
        return status
    raise RefreshError(
        f"Job {job_id} on {server.url} is not finished after {waited:.0f} s, and it cannot be "
        "cancelled for certain. It may still take effect, so nothing else is sent: the next run "
        "asks for it again. If it hangs, cancel it on the server's Jobs page."
    )
