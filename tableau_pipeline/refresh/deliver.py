"""Send, and record enough for the next refresh to find out what became of it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from tableau_pipeline.actions.batch import describe_actions
from tableau_pipeline.core.checkpoint import (
    Checkpoint,
    Habits,
    Intent,
    Outcome,
    PublishMode,
    TableContent,
)
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import DriftError, RefreshError, RefusedError
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.extracts.delta import Delta, RowCounts
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.claim import Claimed
from tableau_pipeline.refresh.jobs import Jobs
from tableau_pipeline.refresh.observe import Change, Published, Window, revisions_of
from tableau_pipeline.refresh.plan import NoChange, Publish, Update
from tableau_pipeline.refresh.published import Keeper, found, located, move, place, tag
from tableau_pipeline.refresh.reconcile import Reconciler
from tableau_pipeline.refresh.report import Report, phase


@dataclass(frozen=True, slots=True)
class Sent:
    """The result of sending an update or a file.

    Attributes:
        checkpoint: the checkpoint that was reached; None if no update can build on it.
        intent: the recorded intent; None if nothing had to be sent.
        doubt: why somebody else may have changed the data source as well; None if nobody has.
        learnt: what the site has shown about its behaviour, provided that nobody else changed
            it.
    """

    checkpoint: Checkpoint | None
    remote: RemoteDatasource
    intent: Intent | None
    doubt: str | None = None
    learnt: Habits = field(default_factory=Habits)

    @property
    def job_id(self) -> str | None:
        """The id of the server's job, if it made one."""
        return self.intent.job_id if self.intent else None

    def without_doubt(self) -> "Sent":
        """Return this result without the doubt, once the contents have resolved it."""
        if self.checkpoint is None:
            return self
        checkpoint = self.checkpoint.model_copy(update={"habits": self.learnt})
        return replace(self, checkpoint=checkpoint, doubt=None)


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
    def server(self) -> TableauSite:
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


# Carry out a decision: rename, build what is missing, send, and check the result.


@dataclass(frozen=True, slots=True)
class Delivery:
    """Executes decisions about the data source `published`."""

    content: Builder
    desired: Mapping[str, TableContent]
    published: Published
    sender: Sender
    reconciler: Reconciler
    keeper: Keeper
    seconds: dict[str, float]

    def execute(
        self, decision: NoChange | Update | Publish, deltas: Sequence[Delta], report: Report
    ) -> tuple[Report, Sent]:
        """Make the data source hold the desired content.

        Raises:
            RefusedError: the server refused; it holds what it held before.
            DriftError: somebody else changed the data source meanwhile.
            RefreshError: the server failed, or did not answer, or the job failed.
        """
        remote, target = self._in_place(), self._target(report)
        match decision:
            case Update() if remote:
                sent = self._updated(target, remote, deltas)
                size = sum(delta.extract.size for delta in deltas)
                report = replace(report, extract=total(deltas), tables=counts(deltas), sent=size)
            case Publish(mode):
                with phase(self.seconds, "build"):
                    extract = self.content.file(self.desired)
                kept = self._kept(mode)
                sent = self._published(target, remote, extract, mode)
                warnings = (*report.warnings, *kept)
                report = replace(report, extract=extract, sent=extract.size, warnings=warnings)
            case _ if remote and self.published.record:
                return report, self._unchanged(target, remote, self.published.record)
            case _:
                raise ValueError(f"{decision.decision} needs a data source, and a record of it")
        return self._proved(report, sent)

    def _target(self, report: Report) -> Checkpoint:
        """The checkpoint to reach, as far as it is known before the update or publish."""
        record, remote = self.published.record, self.published.remote
        declaration, metadata = self.content.declaration, self.published.metadata
        left = record.metadata if record else None
        # Metadata that somebody edited is never recorded as ours: a later overwrite would drop it
        # unasked.
        if metadata and not self.published.is_edited:
            left = metadata.digest
        return Checkpoint(
            refresh=self.sender.claim.number,
            server=self.sender.server.url,
            site=self.sender.server.site,
            project=declaration.project_path,
            name=declaration.name,
            luid=remote.luid if remote else None,
            declaration=self.content.digest,
            tables=dict(self.desired),
            metadata=left,
            updates=record.updates if record else 0,
            size=record.size if record else None,
            grown=record.grown if record else 0,
            orphans=dict(report.orphans),
            habits=record.habits if record else Habits(),
        )

    def _in_place(self) -> RemoteDatasource | None:
        """The data source, renamed or moved if its declaration changed since the last refresh."""
        remote, planned = self.published.remote, self.published.move
        server, declared = self.sender.server, self.content.declaration
        if remote is None or planned is None:
            return remote
        project_id = planned.project_id
        if project_id is None:
            project_id = server.project(declared.project, create=declared.create_project)
        # A move takes effect at once, so an overtaken refresh must be stopped before it.
        self.sender.claim.check_fence()
        return move(server, remote, name=planned.name, project_id=project_id)

    def _kept(self, mode: PublishMode) -> list[str]:
        """Save the data source if its metadata may be lost; say where, if so."""
        remote, published = self.published.remote, self.published
        at_risk = mode is PublishMode.OVERWRITE or not published.is_ours
        if remote is None or not published.is_edited or not at_risk:
            return []
        return [self.keeper.keep(remote)]

    def _unchanged(self, target: Checkpoint, remote: RemoteDatasource, record: Checkpoint) -> Sent:
        remote, doubt = tag(self.sender.server, remote, self.sender.tags)
        update = {
            "updated_at": remote.updated_at,
            "revision": remote.revision,
            "metadata": record.metadata,
            # Nothing was sent, so the last comparison still stands.
            "unreconciled": record.unreconciled,
        }
        return Sent(target.model_copy(update=update), remote, None, doubt, record.habits)

    def _updated(
        self, target: Checkpoint, remote: RemoteDatasource, deltas: Sequence[Delta]
    ) -> Sent:
        grown = target.grown + sum(delta.extract.size for delta in deltas)
        target = target.model_copy(update={"updates": target.updates + 1, "grown": grown})
        # Only the last part has a target. If an earlier one turns out to be the last that landed,
        # the data source is at no checkpoint, and the next run publishes in full.
        *parts, last = deltas
        doubt = None
        with phase(self.seconds, "send"):
            for number, delta in enumerate(parts, start=1):
                partial = f"an update in {len(deltas)} parts was interrupted after part {number}"
                batch, payload = delta.batch.json(), delta.extract.path
                sent = self.sender.update(batch, payload, None, to=remote, partial=partial)
                remote, doubt = sent.remote, doubt or sent.doubt
            batch, payload = last.batch.json(), last.extract.path
            sent = self.sender.update(batch, payload, target, to=remote, partial=doubt)
        return replace(sent, doubt=doubt or sent.doubt)

    def _published(
        self,
        target: Checkpoint,
        remote: RemoteDatasource | None,
        extract: Extract,
        mode: PublishMode,
    ) -> Sent:
        target = target.model_copy(update={"updates": 0, "size": extract.size, "grown": 0})
        # The file brings its own metadata, whose digest is known only once the server has it.
        if mode is not PublishMode.REPLACE:
            target = target.model_copy(update={"metadata": None})
        server, declared = self.sender.server, self.content.declaration
        with phase(self.seconds, "send"):
            if remote:
                project_id = remote.project_id
            else:
                project_id = server.project(declared.project, create=declared.create_project)
            sent = self.sender.publish(extract.path, target, mode, to=remote, project_id=project_id)
            if mode is PublishMode.REPLACE and not self.published.is_ours:
                self.keeper.check_kept(sent.remote, self.published.metadata)
            return sent

    def _proved(self, report: Report, sent: Sent) -> tuple[Report, Sent]:
        """Resolve a doubt by content: if it equals what was sent, nobody else changed it."""
        if sent.doubt and sent.checkpoint:
            found = self.reconciler.judge(sent.checkpoint, sent.remote)
            if not found.problem and not found.skipped:
                report = replace(report, warnings=(*report.warnings, sent.doubt))
                sent = sent.without_doubt()
        return report, sent


def counts(deltas: Sequence[Delta]) -> dict[str, RowCounts]:
    """The row counts of all parts; each part already reports the deletes of all of them."""
    found: dict[str, RowCounts] = {}
    for delta in deltas:
        for name, each in delta.counts.items():
            before = found.get(name)
            inserted = each.inserted + (before.inserted if before else 0)
            found[name] = replace(each, inserted=inserted)
    return found


def total(deltas: Sequence[Delta]) -> Extract:
    """The extract of the last payload, with the rows and bytes of all payloads."""
    rows = {name: each.inserted for name, each in counts(deltas).items()}
    size = sum(delta.extract.size for delta in deltas)
    return replace(deltas[-1].extract, rows=rows, size=size)
