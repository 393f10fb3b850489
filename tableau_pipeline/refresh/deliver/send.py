"""Sending, so that the next refresh can tell what became of it, whatever happens."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from tableau_pipeline.actions.batch import in_words
from tableau_pipeline.core.checkpoint import Checkpoint, Habits, Intent, Outcome, PublishMode
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.core.server import RemoteDatasource, Server
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.refresh.claim import Claimed
from tableau_pipeline.refresh.deliver.marks import DriftError, found, located, mark, place
from tableau_pipeline.refresh.deliver.sent import Sent
from tableau_pipeline.refresh.job_waiting import Jobs
from tableau_pipeline.refresh.recover.window import Change, Window, revisions_of

_TIMESTAMP_PAUSE = 0.25
_UNKNOWN = "What became of it is not known: the next run finds out, and publishes in full."
_NEXT = {
    Outcome.FAILED: "The next run publishes the whole file.",
    Outcome.CANCELLED: "The next run sends it again.",
}


@dataclass
class Sender:
    """Sends for one refresh, which has claimed the data source.

    Attributes:
        tags: what marks the data source as ours.
        sent: how many sendings there were.
    """

    server: Server
    journal: Journal
    claim: Claimed
    jobs: Jobs
    run_id: str
    tags: frozenset[str]
    sleep: Callable[[float], None]
    log: logging.Logger
    sent: int = field(default=0)

    def publish(
        self,
        file: Path,
        target: Checkpoint,
        mode: PublishMode,
        *,
        to: RemoteDatasource | None,
        project_id: str,
    ) -> Sent:
        """Publish a whole file.

        Args:
            to: what it replaces; None for a data source that is yet to be.

        Raises:
            RefusedError: the server said no; it holds what it held before.
            DriftError: somebody changed the data source meanwhile; nothing was sent.
            RefreshError: the server failed, or did not answer, or the job failed.
        """
        name = to.name if to else target.name
        project_id = to.project_id if to else project_id
        upload = self._uploaded(file)
        intent = self._intent(
            mode, name=name, project_id=project_id, to=to, target=target, partial=None
        )

        def call() -> str:
            return self.server.publish(
                upload,
                file_type=file.suffix.removeprefix("."),
                name=name,
                project_id=project_id,
                mode=mode,
            )

        return self._send(intent, to, call, doing=f'Publishing "{name}"')

    def update(
        self,
        batch: str,
        payload: Path | None,
        target: Checkpoint | None,
        *,
        to: RemoteDatasource,
        partial: str | None = None,
        connection: str | None = None,
    ) -> Sent:
        """Change the published data.

        Args:
            batch: the actions as JSON; `payload` has the tables that they name.
            target: None if nothing can build on what this leaves; `partial` says why.

        Raises:
            RefusedError: the server said no; it holds what it held before.
            DriftError: somebody changed the data source meanwhile; nothing was sent.
            RefreshError: the server failed, or did not answer, or the job failed.
        """
        upload = self._uploaded(payload) if payload else None
        intent = self._intent(
            None, name=to.name, project_id=to.project_id, to=to, target=target, partial=partial
        )

        def call() -> str | None:
            return self.server.update(
                to.luid,
                batch=batch,
                upload=upload,
                request_id=intent.request_id,
                connection=connection,
            )

        doing = f'Updating the data of "{to.name}"'
        return self._send(intent, to, call, doing=doing, actions=in_words(batch))

    def _uploaded(self, file: Path) -> str:
        try:
            return self.server.upload(file)
        except FileNotFoundError:
            # Each refresh removes the files of earlier ones: another has come since.
            self.claim.check_fence()
            raise

    def _intent(
        self,
        mode: PublishMode | None,
        *,
        name: str,
        project_id: str,
        to: RemoteDatasource | None,
        target: Checkpoint | None,
        partial: str | None,
    ) -> Intent:
        self.sent += 1
        luid = to.luid if to else None
        return Intent(
            refresh=self.claim.number,
            step=self.sent,
            recorded_at=self.server.now(),
            run_id=self.run_id,
            mode=mode,
            name=name,
            project_id=project_id,
            luid=luid,
            before=to.updated_at if to else None,
            before_revision=to.revision if to else None,
            target=target.model_copy(update={"luid": luid}) if target else None,
            partial=partial,
        )

    def _send(
        self,
        intent: Intent,
        before: RemoteDatasource | None,
        call: Callable[[], str | None],
        *,
        doing: str,
        actions: str = "",
    ) -> Sent:
        """Record, look again, send, wait, and look at what came of it."""
        self.journal.append(intent)
        self.claim.check_fence()
        self._check_unchanged(intent, before)
        intent = self._called(intent, call, doing)
        seen: list[datetime] = []

        def look() -> None:
            remote = self.server.find_by_luid(intent.luid) if intent.luid else None
            seen.extend([remote.updated_at] if remote else [])

        status = self.jobs.wait(str(intent.job_id), meanwhile=look)
        if status is None:
            raise RefreshError(
                f"{doing}: the server no longer knows job {intent.job_id}. {_UNKNOWN}"
            )
        if status.outcome is not Outcome.DONE:
            outcome = status.outcome or Outcome.FAILED
            self._record(intent, outcome=outcome, note=status.notes)
            raise RefreshError(
                f"{doing}: job {intent.job_id} of the server {outcome}. "
                f"{status.notes or 'It gave no reason; the logs of its backgrounder may.'} "
                f"{actions}The data source holds what it held before. {_NEXT.get(outcome, '')}"
            )
        return self._done(intent, before, Window.of(status), seen)

    def _called(self, intent: Intent, call: Callable[[], str | None], doing: str) -> Intent:
        """The intent with its job.

        Raises:
            RefreshError: nobody knows whether the server received it; the intent stays open.
        """
        try:
            job_id = call()
        except RefusedError as error:
            self._record(intent, outcome=Outcome.REFUSED, note=str(error))
            raise
        if job_id is None:
            raise RefreshError(f"{doing}: the server does not name the job. {_UNKNOWN}")
        self.log.info("%s goes on as job %s of the server", doing, job_id)
        return self._record(intent, job_id=job_id)

    def _check_unchanged(self, intent: Intent, before: RemoteDatasource | None) -> None:
        """Look whether what was planned for is still what is there.

        Raises:
            DriftError: somebody changed, removed or created the data source meanwhile.
        """
        if before is None:
            same = self.server.find_by_name(intent.name, project_id=intent.project_id) is None
        else:
            now = self.server.find_by_luid(before.luid)
            same = now is not None and place(now) == place(before)
        if not same:
            self._record(intent, outcome=Outcome.REFUSED, note="it was not sent")
            raise DriftError(
                f'"{intent.name}" was changed on the server while its new content was prepared. '
                "Nothing was sent: the next run decides again."
            )

    def _done(
        self,
        intent: Intent,
        before: RemoteDatasource | None,
        window: Window | None,
        seen: Collection[datetime],
    ) -> Sent:
        """The checkpoint that was reached, with the stamp that the data source has now."""
        remote, target = located(self.server, intent), intent.target
        metadata = None
        if target and intent.mode in (PublishMode.CREATE, PublishMode.OVERWRITE):
            # Before the look that tells whether somebody else was there.
            metadata = self.server.metadata(remote.luid).digest
            remote = found(self.server, remote.luid)
        is_update = intent.mode is None
        habits = target.habits if target else Habits()
        if is_update and before:
            remote = self._moved(remote, before, habits)
        change = Change(
            window,
            before.stamp if before else None,
            remote.stamp,
            revisions=revisions_of(habits, is_update=is_update),
            seen=seen,
        )
        doubt = change.unexplained(habits)
        if target:
            target = target.model_copy(update={"luid": remote.luid})
        if target and metadata and (doubt is None or change.made == 1):
            # What a time stamp leaves open, revisions may settle: ours is the only new one.
            target = target.model_copy(update={"metadata": metadata})
        # Later, the time stamps that were seen meanwhile are gone, and the last one may be ours.
        partial = intent.partial or doubt
        intent = self._record(intent, outcome=Outcome.DONE, target=target, partial=partial)
        remote, doubt_of_tags = mark(self.server, remote, self.tags)
        doubt = doubt or doubt_of_tags
        if target is None:
            return Sent(None, remote, intent, doubt)
        update = {"updated_at": remote.updated_at, "revision": remote.revision}
        learnt = change.learnt(habits, is_update=is_update)
        sent = Sent(target.model_copy(update=update), remote, intent, doubt, learnt)
        return sent if doubt else sent.without_doubt()

    def _moved(
        self, remote: RemoteDatasource, before: RemoteDatasource, habits: Habits
    ) -> RemoteDatasource:
        """The data source once its time stamp shows an update: late on some sites, or never."""
        if habits.moves_timestamp is False:
            return remote
        until = self.server.now() + timedelta(seconds=self.jobs.timeouts.timestamp)
        while remote.updated_at == before.updated_at and self.server.now() < until:
            self.sleep(_TIMESTAMP_PAUSE)
            remote = found(self.server, remote.luid)
        return remote

    def _record(self, intent: Intent, **changes: object) -> Intent:
        changed = intent.model_copy(update=changes)
        self.journal.append(changed)
        return changed
