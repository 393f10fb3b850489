"""One refresh of one data source: claim, recover, observe, plan, deliver, reconcile, record."""

import logging
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

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
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.refresh.attempt import Attempt
from tableau_pipeline.refresh.claim import claimed
from tableau_pipeline.refresh.plan.decide import Accept, Options
from tableau_pipeline.refresh.plan.guards import guard_problems
from tableau_pipeline.refresh.recover.history import read_history
from tableau_pipeline.refresh.report import Report, phase, summary


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
    server: Callable[[], AbstractContextManager[Server]]
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
