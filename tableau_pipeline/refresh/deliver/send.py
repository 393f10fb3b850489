"""Send, and record enough for the next refresh to find out what became of it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tableau_pipeline.actions.batch import describe_actions
from tableau_pipeline.core.checkpoint import Checkpoint, Habits, Intent, Outcome, PublishMode
from tableau_pipeline.core.server import RemoteDatasource, Server
from tableau_pipeline.errors import DriftError, RefreshError, RefusedError
from tableau_pipeline.refresh.claim import Claimed
from tableau_pipeline.refresh.deliver.datasource import found, located, place, tag
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
        tags: the tags of the data source that show that it is ours.
        sent: the number of requests that were sent.
    """

    claim: Claimed
    jobs: Jobs
    tags: frozenset[str]
    sent: int = 0

    @property
    def server(self) -> Server:
        """The server to send to."""
        return self.jobs.server

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
            to: the data source to replace; None to create one.

        Raises:
            RefusedError: the server refused; it holds what it held before.
            DriftError: somebody changed the data source meanwhile; nothing was sent.
            RefreshError: the server failed, or did not answer, or the job failed.
        """
        # The server goes by name: under the declared one, a data source that somebody renamed or
        # moved would get a double.
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
    ) -> Sent:
        """Change the published data.

        Args:
            batch: the actions as JSON; `payload` has the tables that they name.
            target: the checkpoint to reach; None if no update can build on the result.
                `partial` states why.

        Raises:
            RefusedError: the server refused; it holds what it held before.
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
            )

        doing = f'Updating the data of "{to.name}"'
        return self._send(intent, to, call, doing=doing, actions=describe_actions(batch))

    def _uploaded(self, file: Path) -> str:
        try:
            return self.server.upload(file)
        except FileNotFoundError:
            # A refresh removes the files of earlier ones, so a missing file means that a later one
            # runs.
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
            run_id=self.claim.claim.owner.run_id,
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
        """Record the intent, check that nothing changed, send, wait, and check the result."""
        # The intent is stored before the claim is checked: whoever claims after that check sees it.
        self.claim.journal.append(intent)
        try:
            self.claim.check_fence()
            self._check_unchanged(intent, before)
            # That look takes minutes where the network fails, and others may have begun meanwhile.
            self.claim.check_fence()
        except BaseException:
            # An open intent would make the next run wait for a job that does not exist.
            self._record(intent, outcome=Outcome.REFUSED, note="it was not sent")
            raise
        intent = self._called(intent, call, doing)
        seen: list[datetime] = []

        def look() -> None:
            stamp = self.server.updated_at(str(intent.luid))
            seen.extend([stamp] if stamp else [])

        # Our own time stamp will hide those that others leave while the job is in the queue.
        status = self.jobs.wait(str(intent.job_id), meanwhile=look if intent.luid else None)
        if status is None:
            raise RefreshError(
                f"{doing}: the server no longer knows job {intent.job_id}. {_UNKNOWN}"
            )
        if status.outcome is not Outcome.DONE:
            outcome = status.outcome or Outcome.FAILED
            self._record(intent, outcome=outcome, note=status.notes)
            raise RefreshError(
                f"{doing}: job {intent.job_id} of the server {outcome}. "
                f"{status.notes or 'It gave no reason; look in the logs of its backgrounder.'} "
                f"{actions}The data source holds what it held before. {_NEXT.get(outcome, '')}"
            )
        self.claim.check_effect(intent)
        return self._done(intent, before, Window.of(status), seen)

    def _called(self, intent: Intent, call: Callable[[], str | None], doing: str) -> Intent:
        """Send the request; return the intent with its job.

        Raises:
            RefreshError: the server may have received the request or not; the intent stays
                open.
        """
        try:
            job_id = call()
        except RefusedError as error:
            self._record(intent, outcome=Outcome.REFUSED, note=str(error))
            raise
        if job_id is None:
            raise RefreshError(f"{doing}: the server does not name the job. {_UNKNOWN}")
        self.jobs.log.info("%s goes on as job %s of the server", doing, job_id)
        return self._record(intent, job_id=job_id)

    def _check_unchanged(self, intent: Intent, before: RemoteDatasource | None) -> None:
        """Check that the data source is still as it was when the refresh was planned.

        Raises:
            DriftError: somebody changed, removed or created the data source meanwhile.
        """
        if before is None:
            same = self.server.find_by_name(intent.name, project_id=intent.project_id) is None
        else:
            now = self.server.find_by_luid(before.luid)
            same = now is not None and place(now) == place(before)
        if not same:
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
        """The checkpoint that was reached, with the current stamp of the data source."""
        remote, target = located(self.server, intent), intent.target
        metadata = None
        if target and intent.mode in (PublishMode.CREATE, PublishMode.OVERWRITE):
            # Read the metadata before the stamp, which shows whether somebody else changed it.
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
            # Revisions may resolve what the time stamp leaves open: ours is the only new one.
            target = target.model_copy(update={"metadata": metadata})
        # A later refresh cannot see these intermediate time stamps, and the last one may be ours.
        partial = intent.partial or doubt
        # Recorded before the tags are set: what may fail there must not lose the outcome.
        intent = self._record(intent, outcome=Outcome.DONE, target=target, partial=partial)
        remote, doubt_of_tags = tag(self.server, remote, self.tags)
        doubt = doubt or doubt_of_tags
        if target is None:
            return Sent(None, remote, intent, doubt)
        # The tags may have moved the stamp once more.
        update = {"updated_at": remote.updated_at, "revision": remote.revision}
        learnt = change.learnt(habits, is_update=is_update)
        sent = Sent(target.model_copy(update=update), remote, intent, doubt, learnt)
        return sent if doubt else sent.without_doubt()

    def _moved(
        self, remote: RemoteDatasource, before: RemoteDatasource, habits: Habits
    ) -> RemoteDatasource:
        """Wait until the time stamp shows the update: some sites move it late, or never."""
        if habits.moves_timestamp is False:
            return remote
        until = self.server.now() + timedelta(seconds=self.jobs.timeouts.timestamp)
        while remote.updated_at == before.updated_at and self.server.now() < until:
            self.jobs.sleep(_TIMESTAMP_PAUSE)
            remote = found(self.server, remote.luid)
        return remote

    def _record(self, intent: Intent, **changes: object) -> Intent:
        changed = intent.model_copy(update=changes)
        self.claim.journal.append(changed)
        return changed
