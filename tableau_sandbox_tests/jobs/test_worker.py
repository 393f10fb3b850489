"""The worker of jobs, when the database fails under it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tableau_sandbox.control import Control
from tableau_sandbox.jobs.kinds import KINDS, REFRESH
from tableau_sandbox.jobs.worker import Worker
from tableau_sandbox.options import Options
from tableau_sandbox.services import open_services
from tableau_sandbox.store.jobs import job, unfinished_jobs
from tableau_sandbox_tests.jobs.test_long_queues import queue


@pytest.mark.parametrize(
    ("moment", "notes"), [("started_at", "was deleted"), ("completed_at", "itself failed")]
)
def test_errors_of_the_database(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, moment: str, notes: str
):
    """Prevents: one error ends the worker, and jobs stay pending until the sandbox is restarted."""
    with open_services(Options(data_dir=tmp_path), Control()) as services:
        database = services.database
        full = f"BEFORE UPDATE OF {moment} ON job BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        database.change(f"CREATE TEMP TRIGGER full {full}")
        worker = Worker(services, KINDS)
        worker.start()
        try:
            queue(services, REFRESH)
            wait_until(lambda: "disk full" in caplog.text)
            database.change("DROP TRIGGER full")
            queue(services, REFRESH)
            wait_until(lambda: not unfinished_jobs(database))
        finally:
            worker.stop()
        rows = database.rows("SELECT site, luid FROM job ORDER BY number")
        ended = [job(database, row["site"], row["luid"]) for row in rows]
        first, second = ((each and each.notes) or "" for each in ended)
        assert notes in first
        assert "was deleted" in second


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)
