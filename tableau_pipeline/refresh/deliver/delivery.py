"""Carry out a decision: rename, build what is missing, send, and check the result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tableau_pipeline.core.checkpoint import Checkpoint, Habits, PublishMode, TableContent
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.extracts.updates.delta import Delta, RowCounts
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.refresh.deliver.datasource import move, tag
from tableau_pipeline.refresh.deliver.keep import Keeper
from tableau_pipeline.refresh.deliver.send import Sender
from tableau_pipeline.refresh.deliver.sent import Sent
from tableau_pipeline.refresh.plan.decide import NoChange, Publish, Update
from tableau_pipeline.refresh.reconcile import Reconciler
from tableau_pipeline.refresh.recover.observe import Published
from tableau_pipeline.refresh.report import Report, phase


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
