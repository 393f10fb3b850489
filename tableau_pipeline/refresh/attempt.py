"""One attempt of a refresh: recover, observe, plan, deliver, reconcile, record."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from tableau_pipeline.core.checkpoint import Checkpoint, Recovered, TableContent
from tableau_pipeline.core.declaration import tags_of
from tableau_pipeline.core.server import Server
from tableau_pipeline.errors import DriftError, RefusedError
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.extracts.compare import ReconciliationError
from tableau_pipeline.extracts.updates.delta import Delta, Size
from tableau_pipeline.hyper.types.spark_types import hyper_type
from tableau_pipeline.refresh.claim import Claimed
from tableau_pipeline.refresh.deliver.delivery import Delivery, counts, total
from tableau_pipeline.refresh.deliver.keep import Keeper, published_tables
from tableau_pipeline.refresh.deliver.send import Sender
from tableau_pipeline.refresh.deliver.sent import Sent
from tableau_pipeline.refresh.job_waiting import Jobs
from tableau_pipeline.refresh.plan.decide import (
    Accept,
    Facts,
    NoChange,
    Options,
    Plan,
    Publish,
    Refuse,
    Update,
    decide,
)
from tableau_pipeline.refresh.plan.ownership import layout_changes
from tableau_pipeline.refresh.reconcile import Reconciler
from tableau_pipeline.refresh.recover.history import History
from tableau_pipeline.refresh.recover.observe import Observer, Published
from tableau_pipeline.refresh.recover.recovery import Recovery
from tableau_pipeline.refresh.report import Report, phase

if TYPE_CHECKING:
    from tableau_pipeline.refresh.refresh import Refresh

# What is logged of each decision, with its reason.
DECISION = "Decision: %s. Reason: %s"

_Desired = Mapping[str, TableContent]


class Attempt:
    """One attempt of a refresh; `content` builds its files.

    If it finds that somebody else is changing the data source, it observes and decides once more,
    but not a second time.
    """

    def __init__(
        self,
        refresh: "Refresh",
        server: Server,
        content: Builder,
        history: History,
        options: Options,
    ) -> None:
        self._refresh = refresh
        self._declaration = refresh.declaration
        self._server = server
        self._content = content
        self._history = history
        takeover = {Accept.TAKEOVER} if refresh.takeover else set()
        self._options = replace(options, accept=options.accept | takeover)
        self._seconds: dict[str, float] = {}
        self._moves: dict[str, str] = {}
        self._jobs = Jobs(server, refresh.timeouts, refresh.sleep, refresh.log)
        self._reconciler = Reconciler(
            declaration=refresh.declaration,
            snapshots=content.snapshots,
            server=server,
            hyper=refresh.hyper,
            log=refresh.log,
            sleep=refresh.sleep,
        )
        self._observer = Observer(
            declaration=refresh.declaration,
            server=server,
            reconciler=self._reconciler,
            tags=tags_of(refresh.declaration.key, refresh.journal.instance),
            log=refresh.log,
        )

    def dry_run(self) -> Report:
        """Report what would be done: check the rows, and build an update to measure it."""
        published = self._observer.observe(self._recovered(None), self._project())
        desired, decision, deltas = self._decided(published)
        report = self._report(decision, desired, published)
        if isinstance(decision, Publish):
            # Building the file would check the rows, but a dry run does not build it.
            self._content.check(desired)
        if not isinstance(decision, Update):
            return report
        for delta in deltas:
            delta.extract.path.unlink()
        return replace(report, extract=total(deltas), tables=counts(deltas))

    def run(self, claim: Claimed) -> Report:
        """Recover, observe, decide, deliver and record."""
        recovered = self._recovered(claim)
        sender = Sender(claim, self._jobs, self._observer.tags)
        try:
            report, sent = self._delivered(recovered, sender)
        except DriftError as error:
            # No data was sent, so what recovery found still holds; only the server has to be
            # observed again.
            self._refresh.log.warning("%s", error)
            report, sent = self._delivered(recovered, sender)
        else:
            if sent.doubt:
                self._refresh.log.warning("%s. It is published in full", sent.doubt)
                # The rows may be a mixture of ours and others', which only a whole file ends.
                recovered = recovered.after(sent.intent) if sent.intent else recovered
                recovered = recovered.distrusted(sent.doubt)
                said = report.warnings
                report, sent = self._delivered(recovered, sender)
                # Where the first try has saved the work of people, for instance.
                warnings = tuple(dict.fromkeys((*said, *report.warnings)))
                report = replace(report, warnings=warnings)
        return self._recorded(claim, report, sent)

    def _recovered(self, claim: Claimed | None) -> Recovered:
        with phase(self._seconds, "settle"):
            return Recovery(self._jobs, claim).recover(self._history)

    def _project(self) -> str | None:
        """The id of the project; None if it does not exist, and may be created."""
        declaration = self._declaration
        # It is created only when a file is sent: a refused refresh must not leave an empty project.
        if declaration.create_project:
            return self._server.find_project(declaration.project)
        return self._server.project(declaration.project, create=False)

    def _decided(self, published: Published) -> tuple[_Desired, Plan, Sequence[Delta]]:
        """The desired content, the decision, and the deltas of an update."""
        content = self._content
        with phase(self._seconds, "plan"):
            desired = content.desired(published.record)
            facts = Facts(self._declaration, content.digest, desired, published, content.whole)
        deltas: list[Delta] = []

        # The size of an update is known only once its payload is built, so the payload is kept
        # and sent if the decision is an update.
        def measure(changed: Sequence[str], base: Checkpoint) -> Size:
            built, size = self._measured(changed, desired, base)
            deltas.extend(built)
            return size

        @cache
        def layout() -> Sequence[str]:
            return self._layout_changes(desired, published)

        decision = decide(facts, self._options, measure, layout)
        if not isinstance(decision, Update):
            for delta in deltas:
                delta.extract.path.unlink()
        if published.record and isinstance(decision, NoChange | Update):
            # A publish checks all tables anyway. Otherwise a key that was declared since then would
            # pass unchecked until the next change of the rows.
            changed = decision.tables if isinstance(decision, Update) else ()
            with phase(self._seconds, "plan"):
                content.check_unchanged(desired, published.record, changed=changed)
        return desired, decision, deltas

    def _layout_changes(self, desired: _Desired, published: Published) -> Sequence[str]:
        """In what the tables of a data source that is taken over differ from ours."""
        if published.remote is None:
            return []
        # The server chooses the tables and types of a file that it converts itself.
        if why := self._content.whole:
            return [why]
        declaration = self._declaration
        wanted = {
            declaration.published_name(name): {
                column.name: hyper_type(column, table=name) for column in table.columns
            }
            for name, table in desired.items()
        }
        with phase(self._seconds, "plan"):
            try:
                found = published_tables(self._server, published.remote, self._refresh.hyper)
            except ValueError as error:
                return [f"its tables cannot be read ({error})"]
        return layout_changes(found, wanted)

    def _measured(
        self, changed: Sequence[str], desired: _Desired, base: Checkpoint
    ) -> tuple[list[Delta], Size]:
        possible = self._server.payload_limit
        # 0 stays 0: a server without updates takes no payload, whatever limit is declared.
        limit = possible and (self._declaration.payload_limit or possible)
        with phase(self._seconds, "build"):
            delta = self._content.delta(changed, desired, base)
            pieces: list[Delta] = []
            if self._declaration.oversize == "split" and delta.extract.size > limit:
                pieces = self._content.split(delta, limit)
        size = Size(delta.counts, delta.extract.size, limit, pieces=len(pieces))
        if pieces:
            delta.extract.path.unlink()
        return pieces or [delta], size

    def _report(self, decision: Plan, desired: _Desired, published: Published) -> Report:
        """The report, with the decision and the orphans."""
        report = Report(
            plan=decision,
            remote=published.remote,
            warnings=published.warnings,
            seconds=self._seconds,
            before=published.rows or {},
            moves=published.move.phrases if published.move else {},
        )
        self._refresh.log.info(DECISION, report.decision, report.reason)
        changed, base = desired.keys(), None
        match decision:
            case Refuse():
                return report
            case Update(tables):
                changed, base = tables.keys(), published.record
            case NoChange():
                return replace(report, orphans=published.record.orphans if published.record else {})
        with phase(self._seconds, "build"):
            orphans = self._content.orphans(desired, changed=changed, base=base)
        return replace(report, orphans=orphans)

    def _delivered(self, recovered: Recovered, sender: Sender) -> tuple[Report, Sent]:
        published = self._observer.observe(recovered, self._project())
        desired, decision, deltas = self._decided(published)
        if isinstance(decision, Refuse):
            raise RefusedError(decision.reason, decision.failed)
        delivery = Delivery(
            content=self._content,
            desired=desired,
            published=published,
            sender=sender,
            reconciler=self._reconciler,
            keeper=Keeper(self._refresh.kept, self._declaration, self._server, self._refresh.now),
            seconds=self._seconds,
        )
        report = self._report(decision, desired, published)
        # What the first try has moved is in its place when the second one looks.
        self._moves |= report.moves
        return delivery.execute(decision, deltas, replace(report, moves=self._moves))

    def _recorded(self, claim: Claimed, report: Report, sent: Sent) -> Report:
        """Compare the published data with the models unless that was done, and record the result.

        If an earlier refresh could not look, this one tries again, even if it has sent nothing.

        Raises:
            ReconciliationError: the data differs; no update may build on it until it is equal.
        """
        if sent.checkpoint is None:
            raise ValueError("a refresh ends with a checkpoint")
        checkpoint = sent.checkpoint.model_copy(update={"suspect": sent.doubt})
        report = replace(report, remote=sent.remote, job_id=sent.job_id)
        if sent.doubt:
            report = replace(report, warnings=(*report.warnings, sent.doubt))
        claim.checkpoint = checkpoint
        # By now the claim has the checkpoint: if the comparison breaks off, what was sent is known.
        if self._declaration.reconcile and checkpoint.unreconciled:
            with phase(self._seconds, "reconcile"):
                found = self._reconciler.compare(checkpoint, sent.remote)
            if found.problem:
                claim.checkpoint = checkpoint.model_copy(update={"suspect": found.problem})
                raise ReconciliationError(found)
            if found.skipped:
                self._refresh.log.warning("Not reconciled with the models: %s", found.skipped)
            counts = {name: way for name, way in found.by.items() if way != "download"}
            habits = checkpoint.habits.model_copy(
                update={"counts": {**checkpoint.habits.counts, **counts}}
            )
            checkpoint = checkpoint.model_copy(
                update={"unreconciled": found.skipped, "habits": habits}
            )
            report = replace(report, reconciliation=found)
        claim.checkpoint = checkpoint
        return replace(report, checkpoint=checkpoint)
