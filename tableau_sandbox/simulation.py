"""A sandbox without sockets and threads, for tests that need a reproducible order of events.

With a real sandbox, such tests would depend on chance. The simulation changes only when it gets a
request or when time passes. So a test sees the same history each time, call by call and job by job:

    with simulated(folder, start=NOON, chance=Random(7)) as simulation:
        simulation.fate = lambda job: Fate(waits=60)
        simulation.carry(exchange := Exchange("GET", "/api/3.27/serverInfo"))
        simulation.pass_time(3600)

This module also exports the functions that parse action batches and apply them to files without a
server, so that tests of the pipeline need not import inner modules of the sandbox.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Literal
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Scope
from tableauhyperapi import TableName

from tableau_sandbox.batch.engine import apply_batch as apply_batch
from tableau_sandbox.batch.grammar import Batch, Side
from tableau_sandbox.batch.grammar import GrammarError as GrammarError
from tableau_sandbox.batch.grammar import parse_batch as parse_batch
from tableau_sandbox.batch.tables import BatchError as BatchError
from tableau_sandbox.batch.tables import Code as Code
from tableau_sandbox.batch.tables import ColumnType, Table, check_condition
from tableau_sandbox.control import Control
from tableau_sandbox.faults import FailJob
from tableau_sandbox.http.app import build_app
from tableau_sandbox.http.middlewares import DateHeader
from tableau_sandbox.identity import seeded_luid
from tableau_sandbox.jobs.worker import Worker
from tableau_sandbox.options import Options
from tableau_sandbox.services import Services, open_services
from tableau_sandbox.store import jobs
from tableau_sandbox.store.records import Datasource, Job, Site

HOST = "sandbox.test"
Moment = Literal["queued", "started", "ending", "done"]


@dataclass
class Exchange:
    """A request and its answer.

    Attributes:
        target: the path and the query.
        status: the status of the answer; None before the answer.
    """

    method: str
    target: str
    headers: Mapping[str, str | bytes] = field(default_factory=dict)
    body: bytes = b""
    status: int | None = None
    answer_headers: tuple[tuple[str, str], ...] = ()
    answer: bytes = b""

    @property
    def path(self) -> str:
        """The path below `/api/{version}/`, without the query."""
        return urlsplit(self.target).path.removeprefix("/api/").partition("/")[2]


@dataclass(frozen=True)
class Fate:
    """What happens to a job: how long it waits, how long it runs, and its failure or None."""

    waits: float = 0
    runs: float = 0
    fails: FailJob | None = None


@dataclass
class Simulation:
    """A server that changes only when it gets a request or when time passes.

    Attributes:
        now: the time of the simulation's clock.
        fate: returns the fate of a job when the job is queued.
        fates: the fates of the jobs so far, by LUID.
        on_job: called when a job has been queued, has started, is about to end, and has ended.
        stands_still: whether a job starts or ends at this moment, so that no time passes.
    """

    now: datetime
    _chance: Random
    fate: Callable[[Job], Fate] = lambda job: Fate()
    on_job: Callable[[Moment, Job], None] = lambda moment, job: None
    fates: dict[str, Fate] = field(default_factory=dict)
    stands_still: bool = False
    _running: tuple[Job, datetime] | None = None
    _services: Services = field(init=False)
    _app: ASGIApp = field(init=False)

    @property
    def control(self) -> Control:
        """The faults of the simulation."""
        return self._services.control

    @property
    def site(self) -> str:
        """The LUID of the default site."""
        return self._services.database.all(Site)[0].luid

    def user(self, name: str) -> str:
        """Return the LUID of a user that exists from the start."""
        return seeded_luid("user", name)

    def carry(self, exchange: Exchange) -> None:
        """Answer a request, and give the jobs that it queues their fates."""
        self.answer(exchange)
        for job in self.unfinished():
            if job.luid not in self.fates:
                self.fates[job.luid] = self.fate(job)
                self._at(lambda job=job: self.on_job("queued", job))

    def answer(self, exchange: Exchange) -> None:
        """Answer a request; the jobs that it queues get their fates at the next `carry`."""
        _answer(self._app, exchange)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, so that jobs start and end and time stamps move when they are due.

        The clock stops while a job starts or ends.
        """
        if self.stands_still:
            return
        end = self.now + timedelta(seconds=seconds)
        while (due := self._next(end)) is not None:
            self.now = max(self.now, due)
            self._at(self._step)
        self.now = end
        self._services.apply_late_stamps()

    def come_to_rest(self) -> None:
        """Let all jobs end."""
        while self.unfinished():
            self.pass_time(60)

    def unfinished(self) -> list[Job]:
        """Return the jobs that wait or run, oldest first."""
        return jobs.unfinished_jobs(self._services.database)

    def stamps_to_come(self) -> int:
        """Return the number of delayed changes of `updatedAt` that are still to come."""
        return len(self._services.database.rows("SELECT due FROM late_stamp"))

    def job(self, luid: str) -> Job:
        """Return a job in its current state.

        Raises:
            LookupError: there is no such job.
        """
        found = self._services.database.find(Job, luid=luid)
        if found is None:
            raise LookupError(f"there is no job {luid}")
        return found

    def datasources(self) -> list[Datasource]:
        """Return all published data sources, oldest first."""
        return self._services.database.all(Datasource, site=self.site)

    def hyper_file(self, datasource: Datasource) -> Path:
        """Return the path of the published data, which the caller must not change."""
        return self._services.files.content / datasource.hyper_file

    def execute(self, job: Job) -> None:
        """Let a queued job start and take effect immediately."""
        self.fates[job.luid] = Fate()
        running, self._running = self._running, None
        self._start(job)
        self._end(job)
        self._running = running

    def _at(self, happens: Callable[[], Any]) -> None:
        """Call a function while the clock is stopped."""
        inside, self.stands_still = self.stands_still, True
        try:
            happens()
        finally:
            self.stands_still = inside

    def _next(self, end: datetime) -> datetime | None:
        """Return the time when the next job starts or ends; None if that time is after `end`."""
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
        self._services.apply_late_stamps()
        if self._running:
            job, self._running = self._running[0], None
            self._end(job)
            return
        ready = [job for job in self._pending() if self._ready(job) <= self.now]
        any_order = self._services.options.job_order == "any"
        self._start(self._chance.choice(ready) if any_order else ready[0])

    def _start(self, job: Job) -> None:
        services = self._services
        started = jobs.start_next_job(
            services.database, started_at=services.now(), choose=lambda: job
        )
        if started is None:
            raise RuntimeError(f"job {job.luid} is not in the queue")
        self._running = started, self.now + timedelta(seconds=self.fates[job.luid].runs)
        self.on_job("started", started)

    def _end(self, job: Job) -> None:
        self._running = None
        self.on_job("ending", job)
        # If a user cancelled the job while it ran, this has no effect.
        Worker(self._services).execute(job, self.fates[job.luid].fails)
        self.on_job("done", self.job(job.luid))


@contextmanager
def simulated(
    folder: Path, *, start: datetime, chance: Random, **options: Any
) -> Generator[Simulation]:
    """Open a simulation with its data in a folder.

    Args:
        folder: the folder of the data.
        start: the initial time of the clock.
        chance: chooses among jobs if the option `job_order` allows any order.
        **options: attributes of `Options`.
    """
    made = Simulation(now=start, _chance=chance)
    control = Control(clock=lambda: made.now)
    with open_services(Options(data_dir=folder, **options), control) as services:
        services.in_thread = _run_here
        made._services, made._app = services, DateHeader(build_app(services), services.clock)
        yield made


def check_conditions(
    batch: Batch, *, target: Mapping[str, ColumnType], source: Mapping[str, ColumnType]
) -> None:
    """Check the conditions of a batch against the columns of its tables.

    Raises:
        BatchError: a column does not exist, or the comparison does not apply to its type.
    """
    tables = {"target": target, "source": source}
    found = {name: Table(Side(name), TableName(name), types) for name, types in tables.items()}
    for action in batch.actions:
        check_condition(action.condition, **found)


async def _run_here(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


def _answer(app: ASGIApp, exchange: Exchange) -> None:
    """Let an application answer. The application must not wait, because there is no event loop."""
    parts = iter([exchange.body])
    chunks: list[bytes] = []

    async def receive() -> Message:
        for body in parts:
            return {"type": "http.request", "body": body, "more_body": False}
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            exchange.status = message["status"]
            exchange.answer_headers = tuple(
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in message["headers"]
            )
        else:
            chunks.append(bytes(message.get("body", b"")))

    coroutine: Any = app(_scope(exchange), receive, send)
    with suppress(StopIteration):
        coroutine.send(None)
        raise RuntimeError("the application waits for something")
    exchange.answer = b"".join(chunks)


def _scope(exchange: Exchange) -> Scope:
    url = urlsplit(exchange.target)
    headers = {name.lower(): value for name, value in exchange.headers.items()}
    headers.setdefault("host", HOST)
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": exchange.method,
        "scheme": "http",
        "path": url.path,
        "raw_path": url.path.encode(),
        "query_string": url.query.encode(),
        "root_path": "",
        "headers": [
            (name.encode(), value if isinstance(value, bytes) else value.encode("latin-1"))
            for name, value in headers.items()
        ],
        "client": ("127.0.0.1", 1),
        "server": (HOST, 80),
        "state": {},
    }
