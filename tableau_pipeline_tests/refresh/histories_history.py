"""A history: refreshes of one data source, and after each of them a look at what is published."""

from collections.abc import Collection
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from hypothesis import note

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.refresh.limits import Limits
from tableau_pipeline.refresh.plan import Accept, Options
from tableau_pipeline.refresh.step import Refresh, Report
from tableau_pipeline.sandbox.open_questions import UpdatedAt
from tableau_pipeline.sandbox.testing import Sandbox
from tableau_pipeline_tests.refresh.crashes import KilledError
from tableau_pipeline_tests.refresh.histories_journal import TroubledJournal
from tableau_pipeline_tests.refresh.histories_oracle import (
    contents,
    differences,
    wanted,
)
from tableau_pipeline_tests.refresh.histories_outcomes import (
    Attempt,
    Outcome,
    check_success,
    told,
)
from tableau_pipeline_tests.refresh.histories_reasons import Case
from tableau_pipeline_tests.refresh.histories_server import DataSource
from tableau_pipeline_tests.refresh.histories_snapshots import Snapshots
from tableau_pipeline_tests.refresh.histories_tables import Model
from tableau_pipeline_tests.refresh.histories_troubles import NONE, Calls, Through, Trouble
from tableau_pipeline_tests.refresh.histories_values import NOON
from tableau_pipeline_tests.refresh.histories_worlds import World
from tableau_pipeline_tests.refresh.pipeline import LOG

_SOON = Limits(lock=0, job=0.4, stamp=2)
LONG = Limits(lock=0, job=60, stamp=2)
ACCEPT_ALL = frozenset(Accept)


@dataclass
class History:
    """The data source, its models and its records, and what is known to be published.

    Attributes:
        possible: what may be published: the last success, and every attempt since that may have
            sent something; None while there may be no data source.
        clear: nothing since the last success leaves the pipeline in doubt.
        age: how much longer ago it sent something than its records say.
    """

    world: World
    source: DataSource
    folder: Path
    declaration: Declaration
    models: dict[str, Model]
    snapshots: Snapshots
    now: datetime = NOON
    possible: list[Attempt | None] = field(default_factory=lambda: [None])
    clear: bool = True
    age: timedelta = timedelta()
    day = timedelta(days=1)

    @classmethod
    def of(cls, world: World, sandbox: Sandbox, folder: Path, name: str) -> "History":
        """A history that begins."""
        return cls(
            world=world,
            source=DataSource(sandbox, name, worker=world.worker),
            folder=folder,
            declaration=world.declaration(name),
            models={shape.name: shape.model() for shape in world.shapes},
            snapshots=Snapshots(folder / "snapshots"),
        )

    @property
    def journal(self) -> TroubledJournal:
        return TroubledJournal(self.folder / "journal.json", age=self.age)

    @property
    def late(self) -> bool:
        """Whether time stamps move late."""
        return self.world.setting.updated_at is UpdatedAt.MOVES_LATE

    def refresh(
        self,
        *,
        accept: Collection[Accept] = (),
        full: bool = False,
        dry_run: bool = False,
        trouble: Trouble = NONE,
        limits: Limits = _SOON,
    ) -> Outcome:
        """Refresh, and check what came of it."""
        if self.world.worker and self.source.is_busy():
            # Who may not list jobs has to trust that they take no longer than we wait.
            limits, released = LONG, 5 if trouble.released is None else trouble.released
            trouble = replace(trouble, released=released)
        attempt, before = self._attempt(), list(self.possible)
        guarded = self.clear and Accept.SHRINK not in accept
        options = Options(dry_run=dry_run, full=full, accept=frozenset(accept))
        calls = Calls(trouble, self.source.come_to_rest)
        journal, sendings = self.journal.text(), self._sendings()
        with self.source.trouble(trouble.faults):
            outcome = self._outcome(options, calls, limits)
        note(f"  -> {told(outcome)}")
        if dry_run:
            assert self.journal.text() == journal, "a dry run recorded something"
        else:
            self._learn(attempt, outcome, sent=self._sendings() != sendings)
        self.check()
        if isinstance(outcome, RefusedError):
            untrue = self._case(accept, trouble).untrue(str(outcome))
            assert not untrue, f"refused, but this is not true: {untrue}"
        elif isinstance(outcome, Report) and not dry_run:
            check_success(self.declaration, outcome, attempt, before, guarded=guarded)
        return outcome

    def check(self) -> None:
        """What is published is one of the contents that it may be."""
        published = self.source.content()
        allowed = [attempt and attempt.rows for attempt in self.possible]
        if published in allowed:
            return
        lines = ["What is published is none of what it may be."]
        for number, rows in enumerate(allowed, 1):
            lines.append(f"  As number {number} of these:")
            lines += [f"    {line}" for line in differences(published or {}, rows or {})]
        raise AssertionError("\n".join(lines))

    def _sendings(self) -> set[str]:
        return {intent.request_id for intent in self.journal.all_intents()}

    def _attempt(self) -> Attempt:
        tables = {
            table.name: contents(self.models[table.model], table.retain, self.now)
            for table in self.declaration.tables
        }
        return Attempt(wanted(self.declaration, self.models, self.now), tables)

    def _outcome(self, options: Options, calls: Calls, limits: Limits) -> Outcome:
        journal = Through(self.journal, calls, lambda name: None)
        try:
            report = self._refresh(journal, calls, limits).run(options)
            if report.state and not options.dry_run:
                journal.keep(report.state)
        except (RefreshError, KilledError) as error:
            return error
        return report

    def _refresh(self, journal: Through, calls: Calls, limits: Limits) -> Refresh:
        @contextmanager
        def server():
            with self.source.session.site() as site:
                yield Through(site, calls, self._after)

        return Refresh(
            declaration=self.declaration,
            models=lambda: dict(self.snapshots.newest),
            journal=journal,  # ty: ignore[invalid-argument-type]
            server=server,
            hyper=hyper_process,
            folder=self.folder,
            run_id="test",
            log=LOG,
            limits=limits if self.world.patient else replace(limits, stamp=0),
            now=lambda: self.now,
        )

    def _after(self, call: str) -> None:
        # Whoever waits for a time stamp that moves late need not wait in earnest.
        if self.late and self.world.patient and call == "find_by_luid":
            self.source.time_passes()

    def _learn(self, attempt: Attempt, outcome: Outcome, *, sent: bool) -> None:
        if isinstance(outcome, Report):
            self.possible, self.clear = [attempt], True
        elif not isinstance(outcome, RefusedError):
            self.clear = False
            if sent:
                self.possible.append(attempt)

    def _case(self, accept: Collection[Accept], trouble: Trouble) -> Case:
        remote, state = self.source.remote(), self.journal.state()
        return Case(
            declaration=self.declaration,
            models=self.models,
            now=self.now,
            accept=accept,
            known=[each.contents for each in self.possible if each],
            unclear=not self.clear or (state is not None and state.metadata is None),
            tagged=bool(remote and self.declaration.tag in remote.tags),
            troubled=bool(trouble.faults),
        )
