"""A data source on a sandbox, from outside: what it holds, and the jobs that change it."""

import sqlite3
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager

from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.publishing.credentials import Password
from tableau_pipeline.publishing.site import TableauSite, signed_in
from tableau_pipeline.sandbox.control.faults import Fault, HoldJobs, ReorderJobs
from tableau_pipeline.sandbox.services import DATABASE_FILE
from tableau_pipeline.sandbox.store.jobs import IN_PROGRESS, PENDING
from tableau_pipeline.sandbox.testing import Sandbox
from tableau_pipeline_tests.refresh.histories_oracle import Published, found
from tableau_pipeline_tests.refresh.histories_settings import WORKER
from tableau_pipeline_tests.refresh.histories_troubles import SLOW_SECONDS
from tableau_pipeline_tests.refresh.pipeline import LOG

_LATE_SECONDS = 3


class Session:
    """Signed in as one user, for as long as the server lets us."""

    def __init__(self, sandbox: Sandbox, user: str, password: str) -> None:
        self._sandbox = sandbox
        self._credentials = Password(user, password)
        self._stack = ExitStack()
        self._site: TableauSite | None = None

    @contextmanager
    def site(self) -> Generator[TableauSite]:
        """The session; after an error in the block, the next one is another."""
        if self._site is None:
            session = signed_in(
                self._sandbox.url,
                site="",
                credentials=self._credentials,
                ca_bundle=None,
                log=LOG,
            )
            self._site = self._stack.enter_context(session)
        try:
            yield self._site
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Sign out."""
        self._site = None
        self._stack.close()


class DataSource:
    """The data source of a name."""

    def __init__(self, sandbox: Sandbox, name: str, *, worker: bool) -> None:
        self.sandbox = sandbox
        self.name = name
        user = (WORKER.name, WORKER.password) if worker else (sandbox.user, sandbox.password)
        self.session = Session(sandbox, *user)
        self._eyes = Session(sandbox, sandbox.user, sandbox.password)

    def remote(self) -> RemoteDatasource | None:
        """As the server tells of it."""
        with self._eyes.site() as site:
            items = site.tsc.datasources.filter(name=self.name)
            luids = [str(item.id) for item in items]
            assert len(luids) < 2, f"two data sources are called {self.name}"
            return site.find_by_luid(luids[0]) if luids else None

    def content(self) -> Published | None:
        """What it holds; None if there is none."""
        remote = self.remote()
        if remote is None:
            return None
        with self._eyes.site() as site:
            return found(site, remote.luid)

    def hold_jobs(self) -> None:
        """Let no job begin."""
        self.sandbox.control.add(HoldJobs())

    def is_busy(self) -> bool:
        """Whether jobs wait or run; asked by no call, which a fault could hit."""
        with closing(sqlite3.connect(self.sandbox.data_dir / DATABASE_FILE)) as database:
            sql = "SELECT COUNT(*) FROM job WHERE title = ? AND status IN (?, ?)"
            (count,) = database.execute(sql, (self.name, PENDING, IN_PROGRESS)).fetchone()
        return count > 0

    def reorder_jobs(self) -> None:
        """Take the newest job first."""
        self.sandbox.control.add(ReorderJobs(order="newest"))

    @contextmanager
    def trouble(self, faults: tuple[Fault, ...]) -> Generator[None]:
        """Arm faults for the time of a refresh."""
        armed = [self.sandbox.control.add(fault) for fault in faults]
        try:
            yield
        finally:
            for each in armed:
                self.sandbox.control.clear(each.number)
            # One of them may have ended it.
            self._eyes.close()

    def time_passes(self) -> None:
        """So much that time stamps that move late have moved."""
        self.sandbox.control.advance(_LATE_SECONDS)
        time.sleep(0.05)

    def come_to_rest(self) -> None:
        """Let all jobs come to their end, however slow or late they are."""
        for armed in self.sandbox.control.faults():
            if isinstance(armed.fault, HoldJobs):
                self.sandbox.control.clear(armed.number)
        while self.is_busy():
            self.sandbox.control.advance(SLOW_SECONDS)
            time.sleep(0.03)

    def close(self) -> None:
        """Leave the sandbox as the next history wants to find it."""
        self.sandbox.control.clear()
        self.come_to_rest()
        self.session.close()
        self._eyes.close()
