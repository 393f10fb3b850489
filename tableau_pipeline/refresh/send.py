"""Sending, so that the next refresh can tell what became of it, whatever happens."""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tableau_pipeline.core.checkpoint import Intent, Outcome, PublishMode, State
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.core.server import RemoteDatasource, Server
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.refresh.waiting import wait_for_job

_STAMP_PAUSE = 0.25
_NEXT = {
    Outcome.FAILED: "If this was an update, the next run publishes the whole file instead.",
    Outcome.CANCELLED: "The next run sends it again.",
}


@dataclass(frozen=True, slots=True)
class WholeFile:
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
    edited: bool


@dataclass(frozen=True, slots=True)
class DataUpdate:
    """Actions and their payload, and the data source that they change.

    Attributes:
        tag: marks the data source as ours.
        target: what is reached with it, or, if it is not `final`, with the last one of its kind;
            None if that cannot be told.
    """

    batch: str
    payload: Path | None
    target: State | None
    to: RemoteDatasource
    tag: str
    final: bool = True
    connection: str | None = None


@dataclass(frozen=True, slots=True)
class Sender:
    """What every sending needs.

    Attributes:
        job_timeout: seconds to wait for a job of the server.
        stamp_timeout: seconds to wait until an update shows in the time stamp of the data source.
    """

    server: Server
    journal: Journal
    run_id: str
    job_timeout: float
    stamp_timeout: float
    log: logging.Logger

    def publish(self, sending: WholeFile) -> tuple[State, RemoteDatasource, Intent]:
        """Publish a file: the state that it left, the data source, and how it was sent.

        Raises:
            RefusedError: the server said no; it holds what it held before.
            RefreshError: the server failed, or did not answer: the intent stays open.
        """
        to = self._still_there(sending.to) if sending.to else None
        name = to.name if to else sending.target.name
        project_id = to.project_id if to else sending.project_id
        intent = Intent(
            run_id=self.run_id,
            mode=sending.mode,
            target=sending.target.model_copy(update={"luid": to.luid if to else None}),
            payload=sending.file,
        )
        intent, remote = self._send(
            intent,
            lambda: self.server.publish(
                sending.file, name=name, project_id=project_id, mode=sending.mode
            ),
            found=lambda: self.server.find_by_name(name, project_id=project_id),
            doing=f'Publishing "{name}"',
        )
        landed = sending.target.model_copy(update={"luid": remote.luid})
        intent = self._record(intent, outcome=Outcome.DONE, target=landed)
        state, remote = self._marked(landed, remote, sending)
        # The next refresh may begin before the state is kept, and need not send all of it again.
        return state, remote, self._record(intent, target=state)

    def update(self, sending: DataUpdate) -> tuple[State | None, RemoteDatasource, Intent]:
        """Change the published data: the state that this left, the data source, and how.

        Raises:
            RefusedError: the server said no; it holds what it held before.
            RefreshError: the server failed, or did not answer, or the job failed.
        """
        to = self._still_there(sending.to)
        target = sending.target.model_copy(update={"luid": to.luid}) if sending.target else None
        intent = Intent(
            run_id=self.run_id,
            mode=None,
            target=target,
            luid=to.luid,
            connection=sending.connection,
            batch=sending.batch,
            payload=sending.payload,
            final=sending.final,
        )
        intent, remote = self._send(
            intent,
            lambda: self.server.update(
                to.luid,
                batch=sending.batch,
                payload=sending.payload,
                request_id=intent.request_id,
                connection=sending.connection,
            ),
            found=lambda: self.server.find_by_luid(to.luid),
            doing=f'Updating the data of "{to.name}"',
        )
        intent = self._record(intent, outcome=Outcome.DONE)
        remote = self._tagged(self._stamped(remote, before=to.updated_at), sending.tag)
        if target is None:
            return None, remote, intent
        state = target.model_copy(update={"updated_at": remote.updated_at})
        return state, remote, self._record(intent, target=state)

    def _still_there(self, to: RemoteDatasource) -> RemoteDatasource:
        """Look whether what was planned for is still what is there.

        Raises:
            RefreshError: somebody changed the data source meanwhile.
        """
        if self.server.find_by_luid(to.luid) != to:
            raise RefreshError(
                f'"{to.name}" was changed on the server while its new content was prepared. '
                "Nothing was sent: the next run decides anew."
            )
        return to

    def _send(
        self,
        intent: Intent,
        call: Callable[[], RemoteDatasource | str | None],
        *,
        found: Callable[[], RemoteDatasource | None],
        doing: str,
    ) -> tuple[Intent, RemoteDatasource]:
        """Record, send, await: the data source after it."""
        self.journal.record(intent)
        try:
            answer = call()
        except RefusedError as error:
            self._record(intent, outcome=Outcome.FAILED, note=str(error))
            raise
        if isinstance(answer, RemoteDatasource):
            return intent, answer
        if answer:
            intent = self._record(intent, job_id=answer)
            self._await(intent, answer, doing)
        remote = found() if answer else None
        if remote is None:
            raise RefreshError(
                f"{doing}: what became of it is not known. The next run finds out, and sends it "
                "again if need be."
            )
        return intent, remote

    def _await(self, intent: Intent, job_id: str, doing: str) -> None:
        self.log.info("%s goes on as job %s of the server", doing, job_id)
        status = wait_for_job(self.server, job_id, timeout=self.job_timeout, log=self.log)
        if status is None:
            raise RefreshError(
                f"{doing}: the server no longer knows job {job_id}. The next run finds out what "
                "became of it, and sends it again if need be."
            )
        if status.outcome and status.outcome is not Outcome.DONE:
            self._record(intent, outcome=status.outcome, note=status.notes)
            raise RefreshError(
                f"{doing}: job {job_id} of the server {status.outcome}. "
                f"{status.notes or 'It gave no reason; the logs of its backgrounder may.'} "
                f"{_actions(intent)}The data source holds what it held before. "
                f"{_NEXT[status.outcome]}"
            )

    def _marked(
        self, landed: State, remote: RemoteDatasource, sending: WholeFile
    ) -> tuple[State, RemoteDatasource]:
        """Tag the data source as ours, then read what its next change would change."""
        remote = self._tagged(self.server.find_by_luid(remote.luid) or remote, sending.tag)
        metadata = landed.metadata if sending.edited else self.server.metadata_digest(remote.luid)
        update = {"updated_at": remote.updated_at, "metadata": metadata}
        return landed.model_copy(update=update), remote

    def _tagged(self, remote: RemoteDatasource, tag: str) -> RemoteDatasource:
        if tag in remote.tags:
            return remote
        self.server.tag(remote.luid, tag)
        return self.server.find_by_luid(remote.luid) or remote

    def _stamped(self, remote: RemoteDatasource, *, before: datetime) -> RemoteDatasource:
        """The data source once its time stamp shows an update: late on some servers, or never."""
        until = time.monotonic() + self.stamp_timeout
        while remote.updated_at == before and time.monotonic() < until:
            time.sleep(_STAMP_PAUSE)
            remote = self.server.find_by_luid(remote.luid) or remote
        return remote

    def _record(self, intent: Intent, **changes: object) -> Intent:
        changed = intent.model_copy(update=changes)
        self.journal.record(changed)
        return changed


def _actions(intent: Intent) -> str:
    """What a job was to do, by number: the server's notes tell of one action at most."""
    if intent.batch is None:
        return ""
    actions = [
        f"{number}. {action['action']} {action.get('target-schema', '')}.{action['target-table']}"
        for number, action in enumerate(json.loads(intent.batch)["actions"], start=1)
    ]
    return f"Its actions were: {'; '.join(actions)}. "
