"""The sandbox inside this process: its clock, its jobs and its wire are moved by the history."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Literal

from starlette.types import ASGIApp

from tableau_pipeline_tests.refresh.stateful.server.wire import Exchange, answered
from tableau_sandbox.control.state import Control
from tableau_sandbox.faults import FailJob
from tableau_sandbox.http.app import build_app
from tableau_sandbox.http.date_header import DateHeader
from tableau_sandbox.jobs.registry import KINDS
from tableau_sandbox.jobs.worker import Worker
from tableau_sandbox.options import Options
from tableau_sandbox.quirks import JobOrder
from tableau_sandbox.services import Services, open_services
from tableau_sandbox.store import datasources, jobs
from tableau_sandbox.store.records import Datasource, Job

Moment = Literal["queued", "started", "ending", "done"]


@dataclass(frozen=True)
class Fate:
    """What becomes of a job: how long it waits and runs, and the notes of its failure."""

    waits: float = 0
    runs: float = 0
    fails: FailJob | None = None


@dataclass
class Tableau:
    """A server that stands still unless it is asked something, or time passes.

    Attributes:
        now: its clock.
        fates: what becomes of jobs, by LUID; `fate` decides it when they are queued.
        on_job: hears of every job that is queued, starts, is about to end, or has ended.
        stands_still: no time passes, as something happens to a job at this moment.
    """

    services: Services
    app: ASGIApp
    now: datetime
    chance: Random
    fate: Callable[[Job], Fate] = lambda job: Fate()
    on_job: Callable[[Moment, Job], None] = lambda moment, job: None
    fates: dict[str, Fate] = field(default_factory=dict)
    _running: tuple[Job, datetime] | None = None
    stands_still: bool = False

    @property
    def site(self) -> str:
        """The id of the one site."""
        (row,) = self.services.database.rows("SELECT luid FROM site")
        return row["luid"]

    def carry(self, exchange: Exchange) -> None:
        """Answer a request."""
        answered(self.app, exchange)
        self._note_new_jobs()

    def pass_time(self, seconds: float) -> None:
        """Let jobs start and end, and time stamps move, as their time comes.

        What happens at such a moment happens in that very moment.
        """
        if self.stands_still:
            return
        end = self.now + timedelta(seconds=seconds)
        while (due := self._next(end)) is not None:
            self.now = max(self.now, due)
            self._at(self._step)
        self.now = end
        self.services.apply_late_stamps()

    def come_to_rest(self) -> None:
        """Let all jobs end."""
        while self.unfinished():
            self.pass_time(60)

    def unfinished(self) -> list[Job]:
        """The jobs that wait or run, oldest first."""
        found = jobs.jobs(self.services.database, self.site)
        return [job for job in reversed(found) if job.completed_at is None]

    def job(self, luid: str) -> Job:
        """A job, as it is now."""
        found = jobs.job(self.services.database, self.site, luid)
        assert found is not None
        return found

    def datasources(self) -> list[Datasource]:
        """All published data sources, oldest first."""
        return datasources.datasources(self.services.database, self.site)

    def execute(self, job: Job) -> None:
        """Let a queued job start and take effect in this very moment."""
        self.fates[job.luid] = Fate()
        running, self._running = self._running, None
        self._start(job)
        self._end(job)
        self._running = running

    def _note_new_jobs(self) -> None:
        for job in self.unfinished():
            if job.luid not in self.fates:
                self.fates[job.luid] = self.fate(job)
                self._at(lambda job=job: self.on_job("queued", job))

    def _at(self, happens: Callable[[], Any]) -> None:
        """Nothing that happens in a moment takes time."""
        inside, self.stands_still = self.stands_still, True
        try:
            happens()
        finally:
            self.stands_still = inside

    def _next(self, end: datetime) -> datetime | None:
        """When the next job starts or ends, if it does until then."""
        if self._running:
            due = self._running[1]
        else:
            due = min(map(self._ready, self._pending()), default=end + timedelta(1))
        return due if due <= end else None

    def _pending(self) -> list[Job]:
        return [job for job in self.unfinished() if job.status == jobs.PENDING]

    def _ready(self, job: Job) -> datetime:
        fate = self.fates.setdefault(job.luid, Fate())
        return datetime.fromisoformat(job.created_at) + timedelta(seconds=fate.waits)

    def _step(self) -> None:
        self.services.apply_late_stamps()
        if self._running:
            job, self._running = self._running[0], None
            self._end(job)
            return
        ready = [job for job in self._pending() if self._ready(job) <= self.now]
        any_order = self.services.options.job_order is JobOrder.ANY
        self._start(self.chance.choice(ready) if any_order else ready[0])

    def _start(self, job: Job) -> None:
        started = jobs.start_next_job(
            self.services.database, started_at=self.services.now(), choose=lambda: job
        )
        assert started is not None
        self._running = started, self.now + timedelta(seconds=self.fates[job.luid].runs)
        self.on_job("started", started)

    def _end(self, job: Job) -> None:
        self._running = None
        self.on_job("ending", job)
        # One that was cancelled while it ran is executed in vain.
        Worker(self.services, KINDS).execute(job, self.fates[job.luid].fails)
        self.on_job("done", self.job(job.luid))


@contextmanager
def tableau(folder: Path, *, start: datetime, chance: Random, **options: Any) -> Generator[Tableau]:
    """A server with these options and a clock that starts at `start`."""
    control = Control(clock=lambda: made.now if made else start)
    made: Tableau | None = None
    with open_services(Options(data_dir=folder, **options), control) as services:
        app = DateHeader(build_app(services), services.clock)
        made = Tableau(services, app, now=start, chance=chance)
        yield made
