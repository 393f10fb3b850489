"""Settling: what became of the sendings that earlier refreshes began."""

import logging
import time
from dataclasses import dataclass

from tableau_pipeline.refresh.declaration import Declaration
from tableau_pipeline.refresh.errors import RefreshError
from tableau_pipeline.refresh.journal import Journal
from tableau_pipeline.refresh.server import JobStatus, Server
from tableau_pipeline.refresh.state import Intent, Outcome, State

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0


@dataclass(frozen=True, slots=True)
class Settled:
    """What our own records say of the data source.

    Attributes:
        bases: what it may hold, newest last: one when all is known, none when nothing is.
        luid: of the data source that is ours for certain: an intent to take another one over makes
            it ours only once it is done.
        creating: an open intent was creating the data source, so that it may be ours untagged.
    """

    bases: tuple[State, ...]
    luid: str | None
    creating: bool


def settle(
    declaration: Declaration,
    journal: Journal,
    state: State | None,
    server: Server,
    *,
    timeout: float,
    log: logging.Logger,
) -> Settled:
    """Ask the server what became of each intent since `state`, and record the answer.

    An intent whose job is unknown stays open: its target joins the possible bases.

    Args:
        timeout: seconds to wait for a job that still runs.

    Raises:
        RefreshError: a job still runs after that; nothing may be sent beside it.
    """
    bases = [state] if state else []
    luid = state.luid if state else None
    creating = False
    for recorded in journal.intents():
        if not _is_about(declaration, recorded.target, server):
            continue
        intent = recorded
        if intent.outcome is None and intent.job_id:
            intent = _ask(intent, intent.job_id, server, timeout=timeout, log=log)
            if intent.outcome:
                journal.record(intent)
        if intent.outcome is Outcome.DONE:
            bases, luid = [intent.target], intent.target.luid or luid
        elif intent.outcome is None:
            bases.append(intent.target)
        creating |= intent.outcome is not Outcome.FAILED and intent.target.luid is None
    return Settled(bases=tuple(bases), luid=luid, creating=creating)


def wait_for_job(
    server: Server, job_id: str, *, timeout: float, log: logging.Logger
) -> JobStatus | None:
    """The finished job, or None when the server forgot it.

    Raises:
        RefreshError: it is not finished after `timeout` seconds.
    """
    started, pause = time.monotonic(), _FIRST_PAUSE
    while True:
        status = server.job(job_id)
        if status is None or status.outcome:
            return status
        waited = time.monotonic() - started
        if waited + pause > timeout:
            raise RefreshError(
                f"Job {job_id} on {server.url} is not finished after {waited:.0f} s. It may still "
                "take effect, so nothing else is sent: the next run asks for it again. If it "
                "hangs, cancel it on the server's Jobs page."
            )
        log.info("Waiting for job %s on the server (%.0f s so far)", job_id, waited)
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _ask(
    intent: Intent, job_id: str, server: Server, *, timeout: float, log: logging.Logger
) -> Intent:
    status = wait_for_job(server, job_id, timeout=timeout, log=log)
    if status is None:
        log.warning("The server no longer knows job %s of an interrupted refresh", job_id)
        return intent
    log.info("Job %s of an interrupted refresh: %s %s", job_id, status.outcome, status.notes)
    return intent.model_copy(update={"outcome": status.outcome, "note": status.notes or None})


def _is_about(declaration: Declaration, target: State, server: Server) -> bool:
    return (target.server, target.site, target.project, target.name) == (
        server.url,
        server.site,
        declaration.project,
        declaration.name,
    )
