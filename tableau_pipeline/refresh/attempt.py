"""A refresh at work on a server: recover, observe, plan, deliver, reconcile, record."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tableauhyperapi import HyperProcess

from tableau_pipeline.core.checkpoint import (
    NOT_RECONCILED,
    Checkpoint,
    Habits,
    PublishMode,
    TableContent,
)
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.core.server import Server
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.core.timeouts import Timeouts
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.refresh.claim import Claimed
from tableau_pipeline.refresh.deliver import DriftError, Sender, Sent
from tableau_pipeline.refresh.delta import Delta, RowCounts
from tableau_pipeline.refresh.history import History
from tableau_pipeline.refresh.jobs import Jobs
from tableau_pipeline.refresh.observe import Observer, Published
from tableau_pipeline.refresh.plan import (
    Facts,
    Measure,
    NoChange,
    Options,
    Plan,
    Publish,
    Refuse,
    Size,
    Update,
    decide,
)
from tableau_pipeline.refresh.reconcile import Reconciler, Reconciliation, ReconciliationError
from tableau_pipeline.refresh.recover import Recovered, Recovery
from tableau_pipeline.refresh.report import Clock, Report
from tableau_pipeline.refresh.rows_check import unknown_keys


@dataclass(frozen=True, slots=True)
class Context:
    """What a refresh works with on a server; the attributes are those of `Refresh`."""

    declaration: Declaration
    snapshots: Snapshots
    journal: Journal
    server: Server
    hyper: Callable[[], HyperProcess]
    folder: Path
    run_id: str
    log: logging.Logger
    timeouts: Timeouts
    sleep: Callable[[float], None]


class Content(Protocol):
    """What is to be published: the rows of models, or a file as it is.

    Attributes:
        digest: of the declaration, as it is recorded.
        whole: why nothing less than the whole file may be sent; None if less may do.
    """

    @property
    def digest(self) -> str: ...  # noqa: D102
    @property
    def whole(self) -> str | None: ...  # noqa: D102
    def desired(self, record: Checkpoint | None) -> Mapping[str, TableContent]:
        """What each table is to hold; `record` may know a part of the answer."""

    def check(self, desired: Mapping[str, TableContent]) -> None:
        """Refuse rows that are not fit to be published."""

    def file(self, desired: Mapping[str, TableContent]) -> Extract:
        """The whole data source as a file."""

    def delta(
        self, tables: Collection[str], desired: Mapping[str, TableContent], record: Checkpoint
    ) -> Delta:
        """The payload and the actions of an update of some tables."""

    def split(self, delta: Delta, limit: int) -> list[Delta]:
        """The update as several; empty if it cannot be."""

    def orphans(
        self, desired: Mapping[str, TableContent], changed: Collection[str]
    ) -> dict[str, int]:
        """Rows that point at no row of the other table, by relationship."""


class Attempt:
    """A refresh at work on a server, within the claim.

    Where it finds that somebody else is at work on the data source, it looks and decides once
    more; not again after that.
    """

    def __init__(
        self, context: Context, content: Content, history: History, options: Options
    ) -> None:
        self._context = context
        self._declaration = context.declaration
        self._server = context.server
        self._content = content
        self._history = history
        self._options = options
        self._clock = Clock()
        self._jobs = Jobs(context.server, context.timeouts, context.sleep, context.log)
        self._reconciler = Reconciler(
            declaration=context.declaration,
            snapshots=context.snapshots,
            server=context.server,
            hyper=context.hyper,
            folder=context.folder / "extracts",
            log=context.log,
        )

    def dry_run(self) -> Report:
        """What would be done: rows are checked, an update is built, and removed again."""
        recovered, observer = self._recovered(acts=False)
        published = observer.observe(recovered, self._project())
        desired, decision, deltas = self._decided(published)
        report = Report(
            plan=decision,
            remote=published.remote,
            warnings=published.warnings,
            seconds=self._clock.seconds,
        )
        if isinstance(decision, Refuse):
            return report
        report = replace(report, **self._findings(decision, desired, published))
        if isinstance(decision, Publish):
            self._content.check(desired)
        if not isinstance(decision, Update):
            return report
        for delta in deltas:
            delta.extract.path.unlink()
        return replace(report, extract=_total(deltas), tables=_counts(deltas))

    def run(self, claim: Claimed) -> Report:
        """Recover, then look, decide, deliver and record."""
        recovered, observer = self._recovered(acts=True)
        sender = Sender(
            server=self._server,
            journal=self._context.journal,
            claim=claim,
            jobs=self._jobs,
            run_id=self._context.run_id,
            tags=observer.tags,
            sleep=self._context.sleep,
            log=self._context.log,
        )
        for is_last in (False, True):
            published = observer.observe(recovered, self._project())
            try:
                report, doubt, sent = self._delivered(published, sender)
            except DriftError:
                if is_last:
                    raise
                continue
            if doubt is None or is_last:
                break
            self._context.log.warning("%s. It is published in full", doubt)
            # What was sent is known; what somebody else made of it is not.
            recovered = recovered.after(sent.intent) if sent else recovered
            recovered = replace(recovered, untrusted=doubt)
        return self._recorded(claim, report, doubt)

    def _recovered(self, *, acts: bool) -> tuple[Recovered, Observer]:
        recovery = Recovery(
            self._context.journal, self._server, self._jobs, self._context.log, acts=acts
        )
        with self._clock.phase("settle"):
            recovered = recovery.recover(self._history)
        return recovered, Observer(
            declaration=self._declaration,
            server=self._server,
            recovery=recovery,
            reconciler=self._reconciler,
            instance=self._context.journal.instance,
            log=self._context.log,
        )

    def _project(self) -> str | None:
        """The id of the project; None if it does not exist, and may be created."""
        declaration = self._declaration
        if declaration.create_project:
            return self._server.find_project(declaration.project)
        return self._server.project(declaration.project, create=False)

    def _decided(
        self, published: Published
    ) -> tuple[Mapping[str, TableContent], Plan, list[Delta]]:
        """What is desired, what is done about it, and the deltas of an update."""
        with self._clock.phase("plan"):
            desired = self._content.desired(published.record)
            content = self._content
            facts = Facts(self._declaration, content.digest, desired, published, content.whole)
            decision = decide(facts, self._options)
        deltas: list[Delta] = []
        if isinstance(decision, Measure):
            deltas, size = self._measured(decision, desired, published)
            decision = decide(facts.measured(size), self._options)
        if isinstance(decision, Measure):
            raise TypeError("a measured delta leaves nothing to measure")
        if not isinstance(decision, Update):
            for delta in deltas:
                delta.extract.path.unlink()
        self._context.log.info("Decision: %s. Reason: %s", decision.decision, decision.reason)
        return desired, decision, deltas

    def _measured(
        self, measure: Measure, desired: Mapping[str, TableContent], published: Published
    ) -> tuple[list[Delta], Size]:
        if published.record is None:
            raise ValueError("a delta needs a record of what is published")
        possible = self._server.payload_limit
        limit = possible and (self._declaration.payload_limit or possible)
        with self._clock.phase("build"):
            delta = self._content.delta(measure.tables, desired, published.record)
            pieces: list[Delta] = []
            splits = self._declaration.oversize == "split"
            if splits and delta.extract.size > limit:
                pieces = self._content.split(delta, limit)
        size = Size(delta.counts, delta.extract.size, limit, pieces=len(pieces))
        if pieces:
            delta.extract.path.unlink()
        return pieces or [delta], size

    def _findings(
        self, decision: Plan, desired: Mapping[str, TableContent], published: Published
    ) -> dict[str, object]:
        """What is told of the rows beside the decision: orphans, and keys that nobody checked."""
        record = published.record
        match decision:
            case Update(tables):
                changed = set(tables)
            case NoChange():
                changed = set()
            case _:
                changed = set(desired)
        with self._clock.phase("build"):
            counted = self._content.orphans(desired, changed) if changed else {}
        unchanged = {
            str(edge)
            for edge in self._declaration.relationships
            if not {edge.many, edge.one}.intersection(changed)
        }
        before = record.orphans if record else {}
        orphans = {edge: count for edge, count in before.items() if edge in unchanged} | counted
        keys = unknown_keys(self._declaration, desired, changed=changed)
        return {"orphans": orphans, "unknown_keys": keys}

    def _delivered(
        self, published: Published, sender: Sender
    ) -> tuple[Report, str | None, Sent | None]:
        """The report, why somebody else may have been at work too, and what was sent."""
        desired, decision, deltas = self._decided(published)
        if isinstance(decision, Refuse):
            raise RefusedError(decision.reason, decision.failed)
        report = Report(
            plan=decision,
            remote=published.remote,
            warnings=published.warnings,
            seconds=self._clock.seconds,
        )
        report = replace(report, **self._findings(decision, desired, published))
        target = self._target(desired, published, report, sender)
        published, moved = self._moved(published, sender)
        match decision:
            case NoChange():
                return self._unchanged(report, target, published, sender, moved)
            case Update():
                return self._updated(report, target, published, sender, deltas)
            case Publish(mode):
                return self._published(report, target, published, sender, mode)

    def _target(
        self,
        desired: Mapping[str, TableContent],
        published: Published,
        report: Report,
        sender: Sender,
    ) -> Checkpoint:
        """The checkpoint that is to be reached, as far as it is known before."""
        record = published.record
        return Checkpoint(
            refresh=sender.claim.number,
            server=self._server.url,
            site=self._server.site,
            project=self._declaration.project_path,
            name=self._declaration.name,
            luid=published.remote.luid if published.remote else None,
            declaration=self._content.digest,
            tables=dict(desired),
            metadata=_metadata(published),
            updates=record.updates if record else 0,
            size=record.size if record else None,
            grown=record.grown if record else 0,
            orphans=dict(report.orphans),
            habits=record.habits if record else Habits(),
        )

    def _moved(self, published: Published, sender: Sender) -> tuple[Published, str | None]:
        """Rename or move the data source if it was declared elsewhere since the last refresh."""
        remote, record, declaration = published.remote, published.record, self._declaration
        if remote is None or record is None:
            return published, None
        if (record.name, record.project) == (declaration.name, declaration.project_path):
            return published, None
        project_id = remote.project_id
        if record.project != declaration.project_path:
            project_id = self._server.project(
                declaration.project, create=declaration.create_project
            )
        name = declaration.name if record.name != declaration.name else remote.name
        if (name, project_id) == (remote.name, remote.project_id):
            return published, None
        sender.claim.check_fence()
        began = self._server.now()
        self._server.move(remote.luid, name=name, project_id=project_id)
        self._context.log.info(
            'Renamed or moved "%s" to "%s" in "%s"', remote.name, name, declaration.project_path
        )
        remote, doubt = sender.changed(remote, began)
        return replace(published, remote=remote), doubt

    def _unchanged(
        self,
        report: Report,
        target: Checkpoint,
        published: Published,
        sender: Sender,
        doubt: str | None,
    ) -> tuple[Report, str | None, Sent | None]:
        remote, record = published.remote, published.record
        if remote is None or record is None:
            raise ValueError("nothing is unchanged without a record")
        remote, doubt_of_tags = sender.mark(remote)
        update = {
            "updated_at": remote.updated_at,
            "revision": remote.revision,
            "metadata": record.metadata,
            "unreconciled": record.unreconciled,
        }
        checkpoint = target.model_copy(update=update)
        doubt = doubt or doubt_of_tags
        return replace(report, checkpoint=checkpoint, remote=remote), doubt, None

    def _updated(
        self,
        report: Report,
        target: Checkpoint,
        published: Published,
        sender: Sender,
        deltas: list[Delta],
    ) -> tuple[Report, str | None, Sent | None]:
        remote, sent, doubt = published.remote, None, None
        size = sum(delta.extract.size for delta in deltas)
        target = target.model_copy(
            update={"updates": target.updates + 1, "grown": target.grown + size}
        )
        for number, delta in enumerate(deltas, start=1):
            if remote is None:
                raise ValueError("an update needs a data source")
            is_last = number == len(deltas)
            partial = f"an update in {len(deltas)} parts was interrupted after part {number}"
            with self._clock.phase("send"):
                sent = sender.update(
                    delta.batch.json(),
                    delta.extract.path,
                    target if is_last else None,
                    to=remote,
                    partial=None if is_last else partial,
                )
            remote, doubt = sent.remote, doubt or sent.doubt
        report = replace(
            report,
            extract=_total(deltas),
            tables=_counts(deltas),
            sent=size,
        )
        return self._proved(report, sent, doubt)

    def _published(
        self,
        report: Report,
        target: Checkpoint,
        published: Published,
        sender: Sender,
        mode: PublishMode,
    ) -> tuple[Report, str | None, Sent | None]:
        with self._clock.phase("build"):
            extract = self._content.file(target.tables)
        target = target.model_copy(update={"updates": 0, "size": extract.size, "grown": 0})
        if mode is not PublishMode.REPLACE:
            target = target.model_copy(update={"metadata": None})
        with self._clock.phase("send"):
            remote, project = published.remote, self._declaration.project
            creates = self._declaration.create_project
            project_id = (
                remote.project_id if remote else self._server.project(project, create=creates)
            )
            sent = sender.publish(extract.path, target, mode, to=remote, project_id=project_id)
        return self._proved(replace(report, extract=extract, sent=extract.size), sent, sent.doubt)

    def _proved(
        self, report: Report, sent: Sent | None, doubt: str | None
    ) -> tuple[Report, str | None, Sent | None]:
        """What is in doubt is settled by content: equal to what was sent, it was ours."""
        if sent is None or sent.checkpoint is None:
            raise ValueError("a refresh ends with what it sent")
        report = replace(
            report, checkpoint=sent.checkpoint, remote=sent.remote, job_id=sent.intent.job_id
        )
        if doubt:
            found = self._reconciler.judge(sent.checkpoint, sent.remote)
            if not found.problem and not found.skipped:
                self._context.log.warning("%s. It holds what was sent all the same", doubt)
                proved = sent.without_doubt().checkpoint
                report = replace(report, checkpoint=proved, warnings=(*report.warnings, doubt))
                doubt = None
        return report, doubt, sent

    def _recorded(self, claim: Claimed, report: Report, doubt: str | None) -> Report:
        """Compare what is published with the models, unless that was done; then record it."""
        checkpoint, remote = report.checkpoint, report.remote
        if checkpoint is None or remote is None:
            raise ValueError("a refresh ends with a checkpoint")
        if doubt:
            report = replace(report, warnings=(*report.warnings, doubt))
        checkpoint = checkpoint.model_copy(update={"suspect": doubt})
        claim.checkpoint = checkpoint
        if self._declaration.reconcile and checkpoint.unreconciled == NOT_RECONCILED:
            with self._clock.phase("reconcile"):
                found = self._reconciler.compare(checkpoint, remote)
            report = replace(report, reconciliation=found)
            checkpoint = self._reconciled(claim, checkpoint, found)
        return replace(report, checkpoint=checkpoint)

    def _reconciled(
        self, claim: Claimed, checkpoint: Checkpoint, found: Reconciliation
    ) -> Checkpoint:
        if found.problem:
            # Nothing may build on it before it is equal.
            claim.checkpoint = checkpoint.model_copy(update={"suspect": found.problem})
            raise ReconciliationError(found)
        if found.skipped:
            self._context.log.warning("Not reconciled with the models: %s", found.skipped)
        checkpoint = checkpoint.model_copy(update={"unreconciled": found.skipped})
        claim.checkpoint = checkpoint
        return checkpoint


def _metadata(published: Published) -> str | None:
    """The digest of the metadata that we left: analysts' edits stay theirs."""
    if published.metadata and not published.is_edited:
        return published.metadata.digest
    return published.record.metadata if published.record else None


def _counts(deltas: list[Delta]) -> dict[str, RowCounts]:
    """What several deltas do in all; each is told how many rows all of them delete."""
    counts: dict[str, RowCounts] = {}
    for delta in deltas:
        for name, each in delta.counts.items():
            before = counts.get(name)
            inserted = each.inserted + (before.inserted if before else 0)
            counts[name] = replace(each, inserted=inserted)
    return counts


def _total(deltas: list[Delta]) -> Extract:
    """The last payload, with the rows and bytes of all."""
    rows = {name: each.inserted for name, each in _counts(deltas).items()}
    size = sum(delta.extract.size for delta in deltas)
    return replace(deltas[-1].extract, rows=rows, size=size)
