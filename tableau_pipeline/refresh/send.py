"""Sending a whole file, so that the next refresh can tell what became of it, whatever happens."""

import logging
from dataclasses import dataclass
from pathlib import Path

from tableau_pipeline.refresh.errors import RefreshError, RefusedError
from tableau_pipeline.refresh.journal import Journal
from tableau_pipeline.refresh.server import RemoteDatasource, Server
from tableau_pipeline.refresh.settle import wait_for_job
from tableau_pipeline.refresh.state import Intent, Outcome, PublishMode, State


@dataclass(frozen=True, slots=True)
class Sending:
    """A file and where it goes.

    Attributes:
        to: None for a data source that is yet to be.
        edited: the metadata stays, and is not what we left: the digest of what we left, in
            `target`, stays too.
    """

    file: Path
    target: State
    mode: PublishMode
    to: RemoteDatasource | None
    project_id: str
    tag: str
    run_id: str
    edited: bool


def send(
    sending: Sending, server: Server, journal: Journal, *, timeout: float, log: logging.Logger
) -> tuple[State, RemoteDatasource]:
    """Publish a file; the state that it left, and the data source.

    Raises:
        RefusedError: the server said no; it holds what it held before.
        RefreshError: the server failed, or did not answer: the intent stays open.
    """
    to = _still_there(sending.to, server)
    luid = to.luid if to else None
    intent = Intent(
        run_id=sending.run_id,
        mode=sending.mode,
        target=sending.target.model_copy(update={"luid": luid}),
        payload=sending.file,
    )
    journal.record(intent)
    try:
        answer = server.publish(
            sending.file,
            name=to.name if to else sending.target.name,
            project_id=to.project_id if to else sending.project_id,
            mode=sending.mode,
        )
    except RefusedError as error:
        journal.record(intent.model_copy(update={"outcome": Outcome.FAILED, "note": str(error)}))
        raise
    if isinstance(answer, str):
        intent = intent.model_copy(update={"job_id": answer})
        journal.record(intent)
        remote = _await(intent, answer, sending, server, journal, timeout=timeout, log=log)
    else:
        remote = answer
    landed = intent.target.model_copy(update={"luid": remote.luid})
    journal.record(intent.model_copy(update={"outcome": Outcome.DONE, "target": landed}))
    state, remote = _finish(landed, remote, server, sending)
    # The next refresh may begin before the state is kept, and need not send all of this again.
    journal.record(intent.model_copy(update={"outcome": Outcome.DONE, "target": state}))
    return state, remote


def _still_there(to: RemoteDatasource | None, server: Server) -> RemoteDatasource | None:
    """Publishing goes by name: look whether that still means what was planned for.

    Raises:
        RefreshError: somebody changed the data source while the file was built.
    """
    if to and server.find_by_luid(to.luid) != to:
        raise RefreshError(
            f'"{to.name}" was changed on the server while its new content was prepared. Nothing '
            "was sent: the next run decides anew."
        )
    return to


def _await(
    intent: Intent,
    job_id: str,
    sending: Sending,
    server: Server,
    journal: Journal,
    *,
    timeout: float,
    log: logging.Logger,
) -> RemoteDatasource:
    log.info("The server goes on with job %s", job_id)
    status = wait_for_job(server, job_id, timeout=timeout, log=log)
    if status and status.outcome is Outcome.FAILED:
        journal.record(intent.model_copy(update={"outcome": Outcome.FAILED, "note": status.notes}))
        raise RefreshError(
            f'Publishing "{sending.target.name}" failed on the server, job {job_id}: '
            f"{status.notes or 'it gave no reason'}. The data source holds what it held before."
        )
    remote = server.find_by_name(
        sending.to.name if sending.to else sending.target.name,
        project_id=sending.to.project_id if sending.to else sending.project_id,
    )
    if status is None or remote is None:
        raise RefreshError(
            f'What became of job {job_id}, which publishes "{sending.target.name}", is not known: '
            "the next run finds out, and publishes again if need be."
        )
    return remote


def _finish(
    landed: State, remote: RemoteDatasource, server: Server, sending: Sending
) -> tuple[State, RemoteDatasource]:
    """Tag the data source as ours, then read what its next change would change."""
    if sending.tag not in remote.tags:
        server.tag(remote.luid, sending.tag)
    remote = server.find_by_luid(remote.luid) or remote
    metadata = landed.metadata if sending.edited else server.metadata_digest(remote.luid)
    update = {"updated_at": remote.updated_at, "metadata": metadata}
    return landed.model_copy(update=update), remote
