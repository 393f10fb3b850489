"""One refresh of one data source: claim, recover, observe, plan, deliver, reconcile, record."""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tableauhyperapi import HyperProcess

from tableau_pipeline.core.declaration import Declaration, file_name
from tableau_pipeline.core.journal import Journal
from tableau_pipeline.core.server import Server
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.core.timeouts import Timeouts
from tableau_pipeline.errors import Check, RefusedError
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.extracts.desired import Models
from tableau_pipeline.extracts.validate.models import Declared, checked_models
from tableau_pipeline.extracts.validate.readable import readable
from tableau_pipeline.refresh.attempt import Attempt
from tableau_pipeline.refresh.claim import Claimed, claimed
from tableau_pipeline.refresh.plan.decide import Accept, Options
from tableau_pipeline.refresh.plan.guards import guard_problems
from tableau_pipeline.refresh.recover.history import read_history
from tableau_pipeline.refresh.report import Report, phase
from tableau_pipeline.refresh.summary import summarized


@dataclass(frozen=True, slots=True)
class Refresh:
    """One refresh with everything that it needs.

    Attributes:
        snapshots: the versions of the models. The newest are read only once the claim is held,
            because an older version must not be published last.
        server: opens a session when it is first needed.
        folder: the folder for built files, the same for every run of a data source.
        run_id: the run to which the records attribute this refresh.
        now: returns the time of the refresh, from which rolling windows count.
        sleep: takes seconds.
        takeover: take over data sources that another deployment publishes.
    """

    declaration: Declaration
    snapshots: Snapshots
    journal: Journal
    server: Callable[[], AbstractContextManager[Server]]
    hyper: Callable[[], HyperProcess]
    folder: Path
    run_id: str
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
        return self.summarized(options, lambda: self._run(options))

    def summarized(self, options: Options, run: Callable[[], Report]) -> Report:
        """Run a refresh and log its closing line; return its report."""
        began = time.monotonic()
        report = run()
        seconds = time.monotonic() - began
        report = summarized(report, self.declaration, options, seconds=seconds)
        self.log.info("%s", report.summary)
        return report

    def _run(self, options: Options) -> Report:
        if not options.publish:
            models = self.models()
            with readable(self.hyper, self.declaration, models):
                return self._only_build(models, options)
        # A look at the plan neither waits for a running refresh nor leaves a trace in the journal.
        if options.dry_run:
            history = read_history(self.journal.records())
            models = self.models()
            with readable(self.hyper, self.declaration, models), self.server() as server:
                return Attempt(self, server, self.content(models), history, options).dry_run()
        with self.claimed() as claim:
            models = self.models()
            with readable(self.hyper, self.declaration, models), self.server() as server:
                content = self.content(models)
                return Attempt(self, server, content, claim.history, options).run(claim)

    def models(self) -> Models:
        """The newest version of each model, with the column types that the data source declares.

        Raises:
            RefusedError: a model has no snapshot, or cannot be published.
        """
        declared = Declared(self.snapshots, self.declaration.types)
        found = {model: declared.newest(model) for model in self.declaration.models}
        return checked_models(self.declaration, found)

    def claimed(self) -> AbstractContextManager[Claimed]:
        """Hold the claim on the data source, so that no other refresh runs within the block."""
        return claimed(
            self.journal,
            what=self.declaration.key,
            timeout=self.timeouts.claim,
            sleep=self.sleep,
            log=self.log,
        )

    def content(self, models: Models) -> Builder:
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

    def _only_build(self, models: Models, options: Options) -> Report:
        builder = self.content(models)
        seconds: dict[str, float] = {}
        with phase(seconds, "build"):
            desired = builder.desired(None)
            # Nothing is replaced here, so no table can shrink, and only guard.min_rows counts.
            problems = guard_problems(self.declaration, desired, {})
            if problems and Accept.SHRINK not in options.accept:
                found = "\n".join(problems)
                raise RefusedError(found, {Check.GUARD: found})
            orphans = builder.orphans(desired, desired)
            extract = builder.file(desired)
        return Report(plan=None, extract=extract, orphans=orphans, seconds=seconds)
