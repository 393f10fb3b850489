"""Run a sandbox inside the current process, for tests."""

import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from queue import Queue
from typing import Any

from tableau_sandbox.clock import Clock, system_clock
from tableau_sandbox.control import Armed, Control
from tableau_sandbox.faults import Fault, HoldJobs
from tableau_sandbox.http.server import (
    SandboxServer,
    bind,
    certificate_path,
    sandbox_server,
    url_of,
)
from tableau_sandbox.options import ADMIN, CONNECTED_APP, Options
from tableau_sandbox.quirks import Quirks
from tableau_sandbox.services import DATABASE_FILE
from tableau_sandbox.store.jobs import IN_PROGRESS, PENDING, unfinished_jobs
from tableau_sandbox.store.records import Job

_START_SECONDS = 30
_PAUSE_SECONDS = 0.01


class Sandbox:
    """A sandbox that runs in a thread of this process, on a real socket.

    Attributes:
        url: the URL of the sandbox, which stays the same across restarts.
        data_dir: the folder of the data.
        certificate: the certificate that clients must trust if the sandbox serves HTTPS.
        control: the faults and the clock, which stay the same across restarts.
        user: the name of the administrator.
        password: the administrator's password.
        token_name: the name of the administrator's personal access token.
        token_secret: the secret of that token.
        connected_app: an application that signs tokens for the sandbox's users.
    """

    user, password = ADMIN.name, ADMIN.password
    ((token_name, token_secret),) = ADMIN.tokens
    connected_app = CONNECTED_APP

    def __init__(self, options: Options, control: Control):
        self.url = ""
        self.data_dir = options.data_dir
        self.certificate = certificate_path(options.data_dir)
        self.control = control
        self._options = options
        self._port = 0
        self._running: tuple[SandboxServer, threading.Thread] | None = None

    def start(self) -> None:
        """Start the sandbox. After the first start, the sandbox always uses the same port.

        Raises:
            DataDirectoryInUseError: another sandbox uses the data directory.
            sqlite3.DatabaseError: the database is broken.
        """
        listener = bind("127.0.0.1", self._port)
        self._port = listener.getsockname()[1]
        self.url = url_of(listener, tls=self._options.tls)
        started: Queue[SandboxServer | Exception] = Queue()
        thread = threading.Thread(
            target=self._serve, args=(listener, started), name="sandbox", daemon=True
        )
        thread.start()
        server = started.get(timeout=_START_SECONDS)
        if isinstance(server, Exception):
            raise server
        self._running = server, thread

    def _serve(self, listener: socket.socket, started: Queue) -> None:
        def on_ready() -> None:
            started.put(server)

        try:
            with (
                listener,
                sandbox_server(self._options, control=self.control, on_ready=on_ready) as server,
            ):
                server.run(sockets=[listener])
        except Exception as error:
            # `start` raises this error.
            started.put(error)
            if self._running is not None:
                raise

    def hyper_file(self, luid: str) -> Path:
        """Return the current path of a data source's `.hyper` file; only read it, and close it.

        Raises:
            LookupError: the data source does not exist, or has no data of its own.
        """
        # Open a separate connection to the database, so that a test can look while the sandbox is
        # stopped.
        with closing(sqlite3.connect(self.data_dir / DATABASE_FILE)) as database:
            sql = "SELECT hyper_file FROM datasource WHERE luid = ?"
            row = database.execute(sql, (luid,)).fetchone()
        if row is None or not row[0]:
            raise LookupError(f"there is no data source {luid} with data")
        return self.data_dir / "content" / row[0]

    def now(self) -> datetime:
        """Return the current time of the sandbox."""
        return self.control.now()

    def advance(self, seconds: float) -> None:
        """Move the clock ahead. Sessions, uploads, jobs and delayed time stamps use this clock.

        Raises:
            ValueError: the clock would move back, or beyond the supported dates.
        """
        self.control.advance(seconds)

    @contextmanager
    def held_jobs(self, kind: str | None = None) -> Generator[None]:
        """Keep jobs of a kind in the queue within the block; None keeps all jobs there."""
        with self.armed(HoldJobs(job_kind=kind)):
            yield

    def wait_until_idle(self, *, timeout: float = 30) -> None:
        """Wait until all jobs have ended, except jobs that a fault holds in the queue.

        Raises:
            TimeoutError: the jobs have not ended after this many seconds of the machine's clock.
                Jobs run by the sandbox's clock, so the test may have to advance it.
        """
        self._wait_for_jobs(
            lambda unfinished: all(
                job.status == PENDING and self.control.holds(job) for job in unfinished
            ),
            timeout=timeout,
        )

    def wait_until_running(self, *, timeout: float = 30) -> None:
        """Wait until a job is in progress.

        Raises:
            TimeoutError: no job started within this many seconds of the machine's clock.
        """
        self._wait_for_jobs(
            lambda unfinished: any(job.status == IN_PROGRESS for job in unfinished),
            timeout=timeout,
        )

    def _wait_for_jobs(self, done: Callable[[list[Job]], bool], *, timeout: float) -> None:
        if self._running is None:
            raise RuntimeError("the sandbox is not running")
        database = self._running[0].services.database
        deadline = time.monotonic() + timeout
        while not done(unfinished := unfinished_jobs(database)):
            if time.monotonic() > deadline:
                named = ", ".join(f"{job.kind} '{job.title}' {job.status}" for job in unfinished)
                raise TimeoutError(f"after {timeout:g} seconds: {named or 'no jobs'}")
            time.sleep(_PAUSE_SECONDS)

    @contextmanager
    def armed(self, fault: Fault) -> Generator[Armed]:
        """Arm a fault within the block, and yield the armed fault, which counts its hits."""
        armed = self.control.add(fault)
        try:
            yield armed
        finally:
            self.control.clear(armed.number)

    @contextmanager
    def quirks(self, **values: Any) -> Generator[None]:
        """Set other values of `Quirks` within the block.

        Raises:
            TypeError: a name is not a quirk.
        """
        before = self._options
        self.set_quirks(**values)
        try:
            yield
        finally:
            self.set_quirks(**{name: getattr(before, name) for name in values})

    def set_quirks(self, **values: Any) -> None:
        """Change some of the `Quirks`; the sandbox need not be running.

        Raises:
            TypeError: a name is not a quirk.
        """
        known = {each.name for each in fields(Quirks)}
        if unknown := values.keys() - known:
            raise TypeError(f"no quirks: {', '.join(sorted(unknown))}")
        self._options = replace(self._options, **values)
        if self._running is not None:
            self._running[0].services.options = self._options

    def stop(self) -> None:
        """Stop the sandbox; its data stay in the data directory."""
        if self._running is not None:
            server, thread = self._running
            self._running = None
            server.stop()
            thread.join()

    def restart(self) -> None:
        """Stop the sandbox and start it again, as a reboot would."""
        self.stop()
        self.start()


@contextmanager
def running_sandbox(
    data_dir: Path,
    *,
    clock: Clock = system_clock,
    clock_offset: float = 0,
    faults: Iterable[Fault] = (),
    **options: Any,
) -> Generator[Sandbox]:
    """Run a sandbox within the block.

    Args:
        data_dir: the folder of the data; a later sandbox continues with these data.
        clock: returns the current time.
        clock_offset: seconds by which the sandbox is ahead of `clock`; negative if it is behind.
        faults: faults to arm at the start.
        **options: further attributes of `Options`.
    """
    control = Control(clock, faults, offset=clock_offset)
    sandbox = Sandbox(Options(data_dir=data_dir, **options), control)
    sandbox.start()
    try:
        yield sandbox
    finally:
        sandbox.stop()
