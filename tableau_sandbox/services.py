import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from starlette.concurrency import run_in_threadpool

from tableau_sandbox.access import seed_rules
from tableau_sandbox.clock import stamp, stamp_after
from tableau_sandbox.control import Control
from tableau_sandbox.errors import not_found
from tableau_sandbox.faults import StaleRows
from tableau_sandbox.options import Options
from tableau_sandbox.store import datasources, jobs
from tableau_sandbox.store.accounts import seed
from tableau_sandbox.store.database import Database, R
from tableau_sandbox.store.files import Files
from tableau_sandbox.store.records import Datasource

DATABASE_FILE = "sandbox.sqlite"


class DataDirectoryInUseError(RuntimeError):
    """Another sandbox uses the data directory."""


@dataclass
class Services:
    """The services that every handler and every job may use.

    Do not keep a copy of `options`, because tests change options of a running sandbox. `in_thread`
    lets code of the event loop call a function that may block. Hold `publishing` while you change
    the content of data sources. Acquire it before the lock of the database, never while you hold
    that lock.
    """

    options: Options
    control: Control
    database: Database
    files: Files
    in_thread: Callable[..., Awaitable[Any]] = run_in_threadpool
    publishing: threading.Lock = field(default_factory=threading.Lock)

    def known(self, kind: type[R], luid: str, *, code: str, **key: str) -> R:
        """Return the record with this LUID and these values.

        Raises:
            RestError: there is no such record; the error has the code `code`.
        """
        found = self.database.find(kind, luid=luid, **key)
        if found is None:
            raise not_found(kind.__name__, luid, code=code)
        return found

    def clock(self) -> datetime:
        """Return the current time."""
        return self.control.now()

    def now(self) -> str:
        """Return the current time as a stamp of the API."""
        return stamp(self.clock())

    def now_seconds(self) -> float:
        """Return the current time in seconds since the epoch."""
        return self.clock().timestamp()

    def stamp_of_change(self, previous: str) -> str:
        """Return the `updatedAt` for a change that happens now; `previous` is the value so far."""
        if self.options.stamps_within_second == "shared":
            return self.now()
        return stamp_after(previous, self.clock())

    def remember(self, changing: Datasource) -> None:
        """Before a change, keep the data source as it is for each fault that serves old rows."""
        for armed in self.control.faults():
            if isinstance(armed.fault, StaleRows):
                armed.earlier[changing.luid] = changing

    def earlier(self, fault: StaleRows, current: Datasource) -> Datasource:
        """Return the data source as it was before its last change.

        If it has not changed since the fault was armed, return `current`.
        """
        kept = (each.earlier for each in self.control.faults() if each.fault is fault)
        return next(kept, {}).get(current.luid, current)

    def sweep_content(self) -> None:
        """Remove the content files that no data source and no revision uses."""
        with self.database.lock:
            kept = datasources.content_files(self.database)
            for armed in self.control.faults():
                kept += [each.hyper_file for each in tuple(armed.earlier.values())]
            self.files.sweep(self.files.content, kept)

    def apply_late_stamps(self) -> None:
        """Make the delayed changes of `updatedAt` ("late stamps") that are due."""
        datasources.apply_due_stamps(
            self.database,
            now=self.clock(),
            distinct=self.options.stamps_within_second == "distinct",
        )

    def sweep_uploads(self) -> None:
        """Remove expired upload sessions, and blocks without a session."""
        with self.database.lock:
            self.database.change("DELETE FROM upload WHERE expires_at <= ?", self.now_seconds())
            blocks = self.database.rows("SELECT file FROM upload_block")
            self.files.sweep(self.files.uploads, [block["file"] for block in blocks])


@contextmanager
def open_services(options: Options, control: Control) -> Generator[Services]:
    """Open a data directory, and clean up the leftovers of an earlier process.

    Raises:
        DataDirectoryInUseError: another sandbox uses the data directory.
    """
    options.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _sole_user(options.data_dir):
        database = Database(options.data_dir / DATABASE_FILE)
        try:
            services = Services(options, control, database, Files(options.data_dir))
            seed(database, options, created_at=services.now())
            seed_rules(database)
            # These jobs cannot continue: a start empties `incoming/`, which contained their files.
            for job in jobs.unfinished_jobs(database):
                jobs.finish_job(
                    database,
                    job.luid,
                    status=jobs.FAILED,
                    completed_at=services.now(),
                    notes="The sandbox was stopped before the job had finished.",
                )
            services.sweep_content()
            services.sweep_uploads()
            yield services
        finally:
            database.close()


@contextmanager
def _sole_user(data_dir: Path) -> Generator[None]:
    try:
        with FileLock(data_dir / "sandbox.lock", timeout=0, mode=0o600):
            yield
    except Timeout as error:
        raise DataDirectoryInUseError(f"Another sandbox is using {data_dir}.") from error
