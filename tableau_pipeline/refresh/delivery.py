"""Carrying out a plan: build what it needs, see whether that fits, and send it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tableau_pipeline.actions.batch import Batch, Replace
from tableau_pipeline.core.checkpoint import PublishMode, State
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.refresh.files import Files
from tableau_pipeline.refresh.fit import confirm, in_full
from tableau_pipeline.refresh.increment import Increment, Shipped
from tableau_pipeline.refresh.plan import Publish, Update, View
from tableau_pipeline.refresh.report import Clock, Report
from tableau_pipeline.refresh.send import DataUpdate, Sender, WholeFile
from tableau_pipeline.refresh.slices import Slice


@dataclass(frozen=True, slots=True)
class Delivery:
    """What it takes to carry out a plan.

    Attributes:
        project: the id of the data source's project, which is created if need be.
    """

    declaration: Declaration
    desired: State
    view: View
    files: Files
    project: Callable[[], str]
    sender: Sender
    clock: Clock

    def rehearse(self, decision: Update | Publish, report: Report) -> Report:
        """What would be done: rows are checked, an update is built, and removed again.

        Raises:
            RefusedError: the rows of a model are not fit to be published.
        """
        report = replace(report, orphans=self._orphans(decision))
        if isinstance(decision, Publish):
            self.files.check(self.desired.tables)
            return report
        increment, decision = self._built(decision)
        increment.extract.path.unlink()
        if isinstance(decision, Publish):
            return replace(report, plan=decision)
        return replace(report, plan=decision, extract=increment.extract, tables=increment.tables)

    def carry_out(self, decision: Update | Publish, report: Report) -> Report:
        """Build and send.

        Raises:
            RefusedError: it would be wrong or unsafe; nothing was sent or overwritten.
            RefreshError: it could not be carried out; the next run settles what is open.
        """
        report = replace(report, orphans=self._orphans(decision))
        if isinstance(decision, Update):
            increments, decision = self._pieces(decision)
            if isinstance(decision, Update):
                return self._update(increments, replace(report, plan=decision))
            self.sender.log.info("Decision: %s. Reason: %s", decision.decision, decision.reason)
        with self.clock.phase("build"):
            extract = self.files.whole(self.desired.tables)
        report = replace(report, plan=decision, extract=extract)
        if decision.small_as_update and extract.size <= self._limit:
            return self._replace_all(decision, extract, report)
        return self._publish(decision, extract, report)

    def _orphans(self, decision: Update | Publish) -> dict[str, int]:
        """Counted where a table changed; where none did, the rows are those of the last refresh."""
        changed = decision.tables if isinstance(decision, Update) else self.desired.tables
        with self.clock.phase("build"):
            counted = self.files.orphans(self.desired.tables, changed)
        before = self.view.bases[-1].orphans if isinstance(decision, Update) else {}
        edges = [
            str(edge)
            for edge in self.declaration.relationships
            if not {edge.many, edge.one}.intersection(changed)
        ]
        return {edge: before[edge] for edge in edges if edge in before} | counted

    @property
    def _limit(self) -> int:
        possible = self.sender.server.payload_limit
        return possible and (self.declaration.payload_limit or possible)

    def _built(self, update: Update) -> tuple[Increment, Update | Publish]:
        with self.clock.phase("build"):
            increment = self.files.increment(update, self.desired.tables, self.view)
        sizes = [base.size for base in self.view.bases if base.size]
        return increment, confirm(
            update,
            increment,
            published=min(sizes, default=None),
            limit=self._limit,
            oversize=self.declaration.oversize,
        )

    def _pieces(self, update: Update) -> tuple[list[Increment], Update | Publish]:
        """The update, in as many pieces as the limit for payloads makes necessary."""
        increment, decision = self._built(update)
        if isinstance(decision, Publish) or decision.pieces == 1:
            return [increment], decision
        increment.extract.path.unlink()
        with self.clock.phase("build"):
            for pieces in (decision.pieces, 2 * decision.pieces, 4 * decision.pieces):
                increments = [
                    self.files.slice(
                        decision, self.desired.tables, self.view, piece=Slice(number, pieces)
                    )
                    for number in range(pieces)
                ]
                if all(each.extract.size <= self._limit for each in increments):
                    return increments, replace(decision, pieces=pieces)
                for each in increments:
                    each.extract.path.unlink()
        return [], in_full(update, "its touched rows cannot be split below the limit for payloads")

    def _update(self, increments: Sequence[Increment], report: Report) -> Report:
        """One update, or several, of which the report tells the sum."""
        tables = {
            name: replace(
                shipped,
                inserted=sum(each.tables[name].inserted for each in increments),
            )
            for name, shipped in increments[0].tables.items()
        }
        for number, increment in enumerate(increments, start=1):
            report = self._send(
                increment.batch,
                replace(report, extract=increment.extract, tables=tables),
                size=self.view.bases[-1].size,
                final=number == len(increments),
            )
        sent = replace(
            increments[-1].extract,
            rows={name: shipped.inserted for name, shipped in tables.items()},
            size=sum(increment.extract.size for increment in increments),
        )
        return replace(report, extract=sent, sent=sent.size)

    def _replace_all(self, decision: Publish, extract: Extract, report: Report) -> Report:
        """The whole file as one update, which leaves the metadata alone."""
        names = [table.name for table in self.declaration.tables]
        targets = [self.declaration.target(name) for name in names]
        shipped = {
            name: Shipped(
                deleted=max(base.tables[name].content.rows for base in self.view.bases),
                inserted=self.desired.tables[name].content.rows,
                whole="in full",
            )
            for name in names
        }
        update = Update(tables=dict.fromkeys(names, "in full"), reason=decision.reason)
        return self._send(
            Batch(actions=tuple(Replace(target=name, source=name) for name in targets)),
            replace(report, plan=update, tables=shipped),
            size=extract.size,
        )

    def _send(
        self, batch: Batch, report: Report, *, size: int | None, final: bool = True
    ) -> Report:
        remote, extract = report.remote, report.extract
        if remote is None or extract is None:
            raise ValueError("an update needs a data source and a payload")
        target = self.desired.model_copy(
            update={
                "metadata": self.view.our_metadata,
                "increments": 1 + max(base.increments for base in self.view.bases),
                "size": size,
                "grown": max(base.grown for base in self.view.bases) + extract.size,
                "orphans": dict(report.orphans),
            }
        )
        sending = DataUpdate(
            batch=batch.json(),
            payload=extract.path,
            target=target,
            to=remote,
            tag=self.declaration.tag,
            final=final,
        )
        with self.clock.phase("send"):
            state, remote, intent = self.sender.update(sending)
        return replace(report, state=state, remote=remote, job_id=intent.job_id, sent=extract.size)

    def _publish(self, decision: Publish, extract: Extract, report: Report) -> Report:
        keeps_metadata = decision.mode is PublishMode.REPLACE
        metadata = self.view.our_metadata if keeps_metadata else None
        sending = WholeFile(
            file=extract.path,
            target=self.desired.model_copy(
                update={
                    "metadata": metadata,
                    "size": extract.size,
                    "orphans": dict(report.orphans),
                }
            ),
            mode=decision.mode,
            to=self.view.remote,
            project_id=self.project(),
            tag=self.declaration.tag,
            edited=keeps_metadata and self.view.edited,
        )
        with self.clock.phase("send"):
            state, remote, intent = self.sender.publish(sending)
        return replace(report, state=state, remote=remote, job_id=intent.job_id, sent=extract.size)
