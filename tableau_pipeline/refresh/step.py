"""One refresh of one data source, from start to finish: settle, plan, build, send, record."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from tableauhyperapi import HyperProcess

from tableau_pipeline.core.checkpoint import UNSEEN, Intent, Outcome, State
from tableau_pipeline.core.declaration import Declaration, file_name, lock_file
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.core.server import Server
from tableau_pipeline.errors import Check, RefusedError
from tableau_pipeline.refresh.alone import alone
from tableau_pipeline.refresh.contents import Models, desired_tables
from tableau_pipeline.refresh.delivery import Delivery
from tableau_pipeline.refresh.files import Files
from tableau_pipeline.refresh.guards import guard_problems
from tableau_pipeline.refresh.inputs import check_models
from tableau_pipeline.refresh.limits import Limits
from tableau_pipeline.refresh.look import look
from tableau_pipeline.refresh.plan import Accept, NoChange, Options, Refuse, Update, View, plan
from tableau_pipeline.refresh.readable import readable
from tableau_pipeline.refresh.reconcile import Reconciling, UnequalError
from tableau_pipeline.refresh.report import Clock, Report
from tableau_pipeline.refresh.rows_check import unknown_keys
from tableau_pipeline.refresh.send import Sender


@dataclass(frozen=True, slots=True)
class Refresh:
    """Everything that a refresh works with.

    Attributes:
        models: finds the newest snapshots of each model, by its asset key; none where there are
            none. Asked for when no other refresh runs: an older one must not come last.
        server: opens a session when it is first needed.
        folder: for the locks and files of refreshes; the same for every run of a data source.
        run_id: says in the records whose sending it was.
        now: the day of the refresh, from which rolling windows count.
    """

    declaration: Declaration
    models: Callable[[], Models]
    journal: Journal
    server: Callable[[], AbstractContextManager[Server]]
    hyper: Callable[[], HyperProcess]
    folder: Path
    run_id: str
    log: logging.Logger
    limits: Limits = field(default_factory=Limits)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def run(self, options: Options) -> Report:
        """Make the published data source equal to its models, or say why not.

        Raises:
            RefusedError: it would be wrong or unsafe; nothing was sent or overwritten.
            RefreshError: it could not be carried out; the next run settles what is open.
        """
        with self.alone():
            types = self.declaration.types
            models = {
                model: [snapshot.declared(types) for snapshot in snapshots]
                for model, snapshots in self.models().items()
            }
            check_models(self.declaration, models)
            with readable(self.hyper, self.declaration, models):
                if not options.publish:
                    return self._only_build(models, options)
                with self.server() as server:
                    return self._refresh(server, models, options)

    def _only_build(self, models: Models, options: Options) -> Report:
        clock, files = Clock(), self._files(models)
        with clock.phase("build"):
            tables = desired_tables(self.hyper, self.declaration, models, bases=(), now=self.now())
            accept = Accept.SHRINK in options.accept
            if problems := guard_problems(self.declaration, tables, (), accept_shrink=accept):
                found = "\n".join(problems)
                raise RefusedError(found, {Check.GUARD: found})
            orphans = files.orphans(tables, tables)
            extract = files.whole(tables)
        return Report(plan=None, extract=extract, orphans=orphans, seconds=clock.seconds)

    def _refresh(self, server: Server, models: Models, options: Options) -> Report:
        clock = Clock()
        with clock.phase("settle"):
            project_id = self.project(server)
            view = self.look(server, project_id, options)
        with clock.phase("plan"):
            desired = self._desired(server, models, view)
            decision = plan(self.declaration, desired, view, options)
        self.log.info("Decision: %s. Reason: %s", decision.decision, decision.reason)
        report = Report(plan=decision, remote=view.remote, seconds=clock.seconds)
        if isinstance(decision, Refuse) and not options.dry_run:
            raise RefusedError(decision.reason, decision.failed)
        if isinstance(decision, NoChange):
            report = replace(
                report,
                orphans=view.bases[-1].orphans,
                unknown_keys=unknown_keys(self.declaration, desired, changed=()),
            )
            if options.dry_run:
                return report
            report = replace(report, state=_renewed(view, desired))
            return self._reconciled(server, models, report)
        if isinstance(decision, Refuse):
            return report
        delivery = Delivery(
            declaration=self.declaration,
            desired=desired,
            view=view,
            files=self._files(models),
            project=lambda: project_id or server.project(self.declaration.project, create=True),
            sender=self.sender(server),
            clock=clock,
        )
        if options.dry_run:
            return delivery.rehearse(decision, report)
        report = delivery.carry_out(decision, report)
        if isinstance(report.plan, Update):
            unknown = unknown_keys(self.declaration, desired, changed=report.plan.tables)
            report = replace(report, unknown_keys=unknown)
        with clock.phase("reconcile"):
            return self._reconciled(server, models, report)

    def _reconciled(self, server: Server, models: Models, report: Report) -> Report:
        """Compare what is published with the models, unless that was done before.

        Raises:
            RefreshError: it differs; the next run publishes in full.
        """
        state = report.state
        if state is None or self.declaration.reconcile is None or state.unreconciled != UNSEEN:
            return report
        folder = self.folder / "extracts"
        found = Reconciling(
            self.declaration, models, server, self.hyper(), folder, self.log
        ).compare(state)
        if found.problem:
            # No increment may build on it.
            self.journal.record(self._sent(state).model_copy(update={"unequal": found.problem}))
            raise UnequalError(found)
        if found.skipped:
            self.log.warning("Not reconciled with the models: %s", found.skipped)
        state = state.model_copy(update={"unreconciled": found.skipped})
        return replace(report, state=state, reconciliation=found)

    def _sent(self, state: State) -> Intent:
        """What led to a state: the last intent; none was kept if that was long ago."""
        for intent in reversed(self.journal.intents()):
            if intent.outcome is Outcome.DONE:
                return intent
        return Intent(
            run_id=self.run_id,
            mode=None,
            target=state,
            luid=state.luid,
            payload=None,
            outcome=Outcome.DONE,
        )

    def project(self, server: Server) -> str | None:
        """The id of the project; None if it does not exist, and may be created.

        Raises:
            RefusedError: it does not exist, and may not be created.
        """
        declaration = self.declaration
        if declaration.create_project:
            return server.find_project(declaration.project)
        return server.project(declaration.project, create=False)

    def look(self, server: Server, project_id: str | None, options: Options) -> View:
        """Settle what is open, and find the data source."""
        return look(
            self.declaration,
            self.journal,
            server,
            project_id=project_id,
            timeout=self.limits.job,
            resend=not options.dry_run,
            log=self.log,
        )

    def _desired(self, server: Server, models: Models, view: View) -> State:
        declaration = self.declaration
        return State(
            server=server.url,
            site=server.site,
            project=declaration.project,
            name=declaration.name,
            declaration=declaration.digest(),
            tables=desired_tables(
                self.hyper, declaration, models, bases=view.bases, now=self.now()
            ),
        )

    def sender(self, server: Server) -> Sender:
        """What sends, and records it."""
        return Sender(
            server=server,
            journal=self.journal,
            run_id=self.run_id,
            job_timeout=self.limits.job,
            stamp_timeout=self.limits.stamp,
            log=self.log,
        )

    def _files(self, models: Models) -> Files:
        return Files(
            declaration=self.declaration,
            models=models,
            hyper=self.hyper,
            folder=self.folder / "extracts" / file_name(self.declaration.key),
            needed=self.needed,
            log=self.log,
        )

    def needed(self) -> set[Path | None]:
        """The files that may have to be sent again."""
        return {each.payload for each in self.journal.intents() if each.outcome is None}

    def alone(self) -> AbstractContextManager[None]:
        """No other refresh of the data source runs within the block."""
        return alone(
            lock_file(self.folder, self.declaration.key),
            what=self.declaration.key,
            timeout=self.limits.lock,
            log=self.log,
        )


def _renewed(view: View, desired: State) -> State:
    """The newest snapshots take the place of equal ones, which may then be collected."""
    updated_at = view.remote.updated_at if view.remote else None
    return view.bases[-1].model_copy(update={"tables": desired.tables, "updated_at": updated_at})
