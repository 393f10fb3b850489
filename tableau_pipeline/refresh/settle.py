"""Settling: what became of the sendings that earlier refreshes began."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from tableau_pipeline.core.checkpoint import Intent, Outcome, PublishMode, State
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.core.server import JobEntry, JobStatus, RemoteDatasource, Server
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.refresh.landing import Landing
from tableau_pipeline.refresh.waiting import wait_for_job

# Between our clock and the server's.
_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Settled:
    """What our own records say of the data source.

    Attributes:
        bases: what it may hold, newest last: one when all is known, none when nothing is.
        luid: of the data source that is ours for certain: an intent to take another one over makes
            it ours only once it is done.
        creating: an open intent was creating the data source, so that it may be ours untagged.
        trouble: why no update may build on this.
        landing: of the last sending, if it was settled just now. None if more than that was left to
            do: to tag a new data source, and to read the metadata that a file brought along.
    """

    bases: tuple[State, ...] = ()
    luid: str | None = None
    creating: bool = False
    trouble: str | None = None
    landing: Landing | None = None

    @property
    def stamps(self) -> frozenset[datetime]:
        """The time stamps that the data source may have."""
        return frozenset(base.updated_at for base in self.bases if base.updated_at)

    def after(
        self, intent: Intent, status: JobStatus | None, seen: datetime | None = None
    ) -> "Settled":
        """The same, with one more intent taken into account.

        Args:
            status: of its job, if it was asked for just now.
            seen: the time stamp of the data source before that.
        """
        if intent.outcome is Outcome.CANCELLED:
            return self
        if intent.outcome is Outcome.FAILED:
            failed = f"the last update failed on the server ({intent.note or 'without a note'})"
            return self if intent.mode else replace(self, trouble=failed)
        if intent.target is None:
            return replace(self, trouble="an update that was written by hand changed it")
        creating = self.creating or intent.target.luid is None
        if intent.outcome is None or not intent.final:
            return replace(self, bases=(*self.bases, intent.target), creating=creating)
        return Settled(
            bases=(intent.target,),
            luid=intent.target.luid or self.luid,
            creating=creating,
            trouble=intent.unequal,
            landing=Landing.of(status, before=self.stamps, seen=seen)
            if intent.mode in (None, PublishMode.REPLACE)
            else None,
        )


@dataclass(frozen=True, slots=True)
class Settling:
    """Asks the server what became of each intent since the last state, and records the answer.

    Attributes:
        name: of the data source, as declared, as is `project`.
        timeout: seconds to wait for a job that still runs.
        resend: send again what the server may not have received. Without that, nothing changes.
    """

    name: str
    project: str
    journal: Journal
    server: Server
    timeout: float
    log: logging.Logger
    resend: bool = True

    def settle(self, state: State | None) -> Settled:
        """What is published, as far as our records and the server tell.

        An intent whose job is unknown stays open: its target joins the possible bases.

        Raises:
            RefreshError: something still runs after `timeout`; nothing may be sent beside it.
        """
        settled = Settled(bases=(state,) if state else (), luid=state.luid if state else None)
        intents = self.journal.intents()
        for intent in intents:
            if not self._is_about(intent, settled.luid):
                continue
            if intent.outcome is None:
                remote = self._remote(intent)
                # What came before the last one was settled already: sent again now, it would undo
                # the last one wherever the server has forgotten that it was sent.
                closed, status = self._close(
                    intent, remote, again=self.resend and intent is intents[-1]
                )
                settled = settled.after(closed, status, remote.updated_at if remote else None)
            else:
                settled = settled.after(intent, None)
        return settled

    def _remote(self, intent: Intent) -> RemoteDatasource | None:
        luid = intent.luid or (intent.target.luid if intent.target else None)
        return self.server.find_by_luid(luid) if luid else None

    def _close(
        self, intent: Intent, remote: RemoteDatasource | None, *, again: bool
    ) -> tuple[Intent, JobStatus | None]:
        """The intent, with its outcome where that can be learnt; perhaps by sending it again."""
        received = False
        if intent.batch and remote is None:
            self.log.warning("The data source of an interrupted update is gone: %s", intent.luid)
            return intent, None
        if intent.job_id is None and intent.batch and again:
            intent, received = self._send_again(intent, intent.batch)
        if intent.job_id:
            status = self._wait(intent.job_id)
        else:
            status = self._find(intent, remote, received=received)
        if status and status.outcome:
            self.log.info(
                "An interrupted refresh had sent %s: %s %s",
                intent.action,
                status.outcome,
                status.notes,
            )
            intent = intent.model_copy(
                update={"outcome": status.outcome, "note": status.notes or None}
            )
            if self.resend:
                self.journal.record(intent)
        return intent, status

    def _send_again(self, intent: Intent, batch: str) -> tuple[Intent, bool]:
        """The intent with its job, if it is told, and whether the server has it for certain."""
        if intent.payload and not intent.payload.exists():
            self.log.warning("The payload of an interrupted update is lost: %s", intent.payload)
            return intent, False
        # If no answer comes, it may be this one that the server carries out.
        self.journal.record(intent.model_copy(update={"resent_at": datetime.now(UTC)}))
        received, job_id = False, None
        try:
            job_id = self.server.update(
                str(intent.luid),
                batch=batch,
                payload=intent.payload,
                request_id=intent.request_id,
                connection=intent.connection,
            )
            received = True
        except RefusedError as error:
            self.log.warning("An interrupted update cannot be sent again: %s", error)
        intent = intent.model_copy(update={"job_id": job_id})
        self.journal.record(intent)
        return intent, received

    def _wait(self, job_id: str) -> JobStatus | None:
        if not self.resend:
            return self.server.job(job_id)
        status = wait_for_job(self.server, job_id, timeout=self.timeout, log=self.log)
        if status is None:
            self.log.warning("The server no longer knows job %s of an interrupted refresh", job_id)
        return status

    def _find(
        self, intent: Intent, remote: RemoteDatasource | None, *, received: bool
    ) -> JobStatus | None:
        """Wait for every job that may be that of the intent; its status if it must be the one."""
        jobs = self._jobs(intent, remote)
        if jobs is None:
            self._wait_blindly(intent)
            return None
        finished = [self._wait(job.id) for job in jobs]
        kinds = ["publish" if intent.mode else "update"]
        ours = [status for job, status in zip(jobs, finished, strict=True) if job.kind in kinds]
        # The server says that it has it, and lists no other.
        return ours[0] if received and len(ours) == 1 else None

    def _jobs(self, intent: Intent, remote: RemoteDatasource | None) -> list[JobEntry] | None:
        """Those since the intent, by the name that we declare and by one that others gave."""
        names = [self.name, *([remote.name] if remote else [])]
        found: dict[str, JobEntry] = {}
        for name in dict.fromkeys(names):
            jobs = self.server.jobs(name=name, since=intent.recorded_at - _SKEW)
            if jobs is None:
                return None
            found |= {job.id: job for job in jobs}
        return list(found.values())

    def _wait_blindly(self, intent: Intent) -> None:
        """An update that was received runs within the time that jobs may take, or never.

        Raises:
            RefreshError: that time is not over.
        """
        if not intent.batch or not self.resend:
            return
        until = (intent.resent_at or intent.recorded_at) + timedelta(seconds=self.timeout)
        if datetime.now(until.tzinfo) < until:
            raise RefreshError(
                "An interrupted refresh sent an update that the server may have received, and it "
                "does not tell which job that became, nor may this user list jobs. Nothing is sent "
                f"beside it before {until:%Y-%m-%d %H:%M} UTC: run again then, or let the user "
                "list jobs (site administrator)."
            )

    def _is_about(self, intent: Intent, luid: str | None) -> bool:
        target = intent.target
        if target is None:
            return intent.luid == luid
        return (target.server, target.site, target.project, target.name) == (
            self.server.url,
            self.server.site,
            self.project,
            self.name,
        )


def explained(settled: Settled, updated_at: datetime) -> Sequence[State]:
    """The bases; a last one whose time stamp was never read gets it, if it is our own doing."""
    *others, last = settled.bases
    if others or last.updated_at or settled.landing is None:
        return settled.bases
    if settled.landing.explains(updated_at):
        return (last.model_copy(update={"updated_at": updated_at}),)
    return settled.bases
