"""One refresh of one data source: claim, recover, observe, plan, deliver, reconcile, record."""

import logging
import shutil
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from tableau_pipeline.core.checkpoint import Checkpoint, Recovered, TableContent
from tableau_pipeline.core.declaration import Declaration, file_name, tags_of
from tableau_pipeline.core.journal import History, Journal, read_history
from tableau_pipeline.core.server import Timeouts
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.errors import Check, DriftError, RefusedError
from tableau_pipeline.extracts.builder import Builder, ParquetFile, parquet_file
from tableau_pipeline.extracts.checks import Declared, checked_models, readable
from tableau_pipeline.extracts.compare import ReconciliationError
from tableau_pipeline.extracts.delta import Delta, Size
from tableau_pipeline.extracts.desired import Models
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.types import hyper_type
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh.claim import Claimed, claimed
from tableau_pipeline.refresh.deliver import Delivery, Sender, Sent, counts, total
from tableau_pipeline.refresh.jobs import Jobs
from tableau_pipeline.refresh.observe import Observer, Published, Recovery
from tableau_pipeline.refresh.plan import (
    Accept,
    Facts,
    NoChange,
    Options,
    Plan,
    Publish,
    Refuse,
    Update,
    decide,
    guard_problems,
    layout_changes,
)
from tableau_pipeline.refresh.published import Keeper, published_tables
from tableau_pipeline.refresh.reconcile import Reconciler
from tableau_pipeline.refresh.report import Report, phase, summary

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
        server: TableauSite,
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


@dataclass(frozen=True, slots=True)
class Refresh:
    """One refresh with everything that it needs.

    Attributes:
        snapshots: the versions of the models. The newest are read only once the claim is held,
            because an older version must not be published last.
        server: opens a session when it is first needed.
        folder: the folder for built files, the same for every run of a data source.
        kept: the folder, or its URL in an object store, for data sources with the work of people,
            as they were before they were replaced.
        now: returns the time of the refresh, from which rolling windows count.
        sleep: takes seconds.
        takeover: take over data sources that another deployment publishes.
    """

    declaration: Declaration
    snapshots: Snapshots
    journal: Journal
    server: Callable[[], AbstractContextManager[TableauSite]]
    hyper: Callable[[], Hyperd]
    folder: Path
    kept: Path | str
    log: logging.Logger
    timeouts: Timeouts = field(default_factory=Timeouts)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep
    takeover: bool = False

    def run(self, options: Options) -> Report:
        """Make the published data source equal to its models, or report why not.

        Raises:
            RefusedError: the refresh would be wrong or unsafe; nothing was sent or overwritten.
            RefreshError: the refresh failed; the next run finds out what became of it.
        """
        return self.run_with(self._content(), options)

    def run_with(self, content: AbstractContextManager[Builder], options: Options) -> Report:
        """Make the published data source hold a content, which is opened when its turn comes.

        Raises:
            RefusedError, RefreshError: as `run`.
        """
        seconds: dict[str, float] = {}
        with phase(seconds, "total"):
            report = self._run(content, options)
        report = replace(report, seconds={**report.seconds, **seconds})
        report = replace(report, summary=summary(report, self.declaration, options))
        self.log.info("%s", report.summary)
        return report

    def _run(self, opened: AbstractContextManager[Builder], options: Options) -> Report:
        if not options.publish:
            with opened as content:
                return self._only_build(content, options)
        # A look at the plan neither waits for a running refresh nor leaves a trace in the journal.
        if options.dry_run:
            history = read_history(self.journal.records())
            with opened as content, self.server() as server:
                return Attempt(self, server, content, history, options).dry_run()
        alone = claimed(
            self.journal,
            what=self.declaration.key,
            timeout=self.timeouts.claim,
            sleep=self.sleep,
            log=self.log,
        )
        with alone as claim, opened as content, self.server() as server:
            return Attempt(self, server, content, claim.history, options).run(claim)

    @contextmanager
    def _content(self) -> Generator[Builder]:
        """The builder of files from the newest version of each model.

        Raises:
            RefusedError: a model has no snapshot, or cannot be published.
        """
        declared = Declared(self.snapshots, self.declaration.types)
        found = {model: declared.newest(model) for model in self.declaration.models}
        models = checked_models(self.declaration, found)
        with readable(self.hyper, self.declaration, models):
            yield self.builder(models)

    def builder(self, models: Models) -> Builder:
        """The builder of files from these models."""
        return Builder(
            declaration=self.declaration,
            models=models,
            snapshots=Declared(self.snapshots, self.declaration.types),
            hyper=self.hyper,
            folder=self.folder / "extracts" / file_name(self.declaration.key),
            now=self.now,
            log=self.log,
        )

    def _only_build(self, builder: Builder, options: Options) -> Report:
        seconds: dict[str, float] = {}
        with phase(seconds, "build"):
            desired = builder.desired(None)
            # Nothing is replaced here, so no table can shrink, and only guard.min_rows counts.
            problems = guard_problems(self.declaration, desired, {})
            if problems and Accept.SHRINK not in options.accept:
                found = "\n".join(problems)
                raise RefusedError(found, {Check.GUARD: found})
            orphans = builder.orphans(desired, changed=desired, base=None)
            extract = builder.file(desired)
        return Report(plan=None, extract=extract, orphans=orphans, seconds=seconds)


# Publish a Parquet file unread: the server makes the extract from it.


def refresh_as_is(refresh: Refresh, file: Path, options: Options) -> Report:
    """Make a published data source of one table equal to a file, or report why not.

    It is planned like every refresh: ownership, guards, schema changes and analysts' work count.

    Raises:
        RefusedError: publishing would be wrong or unsafe; nothing was sent or overwritten.
        RefreshError: publishing failed; the next run finds out what became of it.
    """
    return refresh.run_with(_content(refresh, file, options), options)


@contextmanager
def _content(refresh: Refresh, file: Path, options: Options) -> Generator[ParquetFile]:
    bare = refresh.builder({})
    if options.dry_run:
        yield parquet_file(file, bare)
        return
    # What is sent must be what was checked, even if somebody writes the file meanwhile.
    bare.folder.mkdir(parents=True, exist_ok=True)
    copy = bare.folder / f"{refresh.journal.owner.run_id}.parquet"
    shutil.copyfile(file, copy)
    try:
        yield parquet_file(copy, bare)
    finally:
        copy.unlink()
