"""The worker of jobs: however many are queued, and when the database fails under it."""

import time
from collections.abc import Callable, Generator
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tableau_sandbox.control import Control
from tableau_sandbox.faults import HoldJobs
from tableau_sandbox.identity import seeded_luid
from tableau_sandbox.jobs.kinds import KINDS, PUBLISH, REFRESH, UPDATE
from tableau_sandbox.jobs.worker import Worker
from tableau_sandbox.options import ADMIN, Options
from tableau_sandbox.services import Services, open_services
from tableau_sandbox.store import jobs
from tableau_sandbox.store.jobs import unfinished_jobs
from tableau_sandbox.store.records import Job
from tableau_sandbox_tests.samples import wait_until

MANY = 10_000
NOW = "2026-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Generator[Services]:
    """A sandbox without a worker."""
    options = Options(data_dir=tmp_path_factory.mktemp("sandbox"))
    with open_services(options, Control()) as opened:
        yield opened


def queue(services: Services, *kinds: str) -> list[str]:
    """Queue jobs of these kinds; their LUIDs."""
    with services.database.transaction():
        return [
            jobs.add_job(
                services.database,
                site=seeded_luid("site", ""),
                user=seeded_luid("user", ADMIN.name),
                kind=kind,
                title=str(number),
                parameters={"datasource": {"id": f"d{number}", "name": "x"}, "batch": "x" * 500},
                created_at=NOW,
            ).luid
            for number, kind in enumerate(kinds)
        ]


def choose(services: Services, control: Control, order: str = "fifo") -> str | None:
    job = control.choose_job(jobs.JobQueue(services.database, KINDS), order)
    return job.luid if job else None


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS)), max_size=8),
    held=st.sets(st.sampled_from([*sorted(KINDS), "other", None])),
    order=st.sampled_from(["fifo", "any"]),
)
def test_next_job(
    services: Services,
    kinds: list[str],
    held: set[str | None],
    order: str,
):
    """Prevents: a held job runs, one that may run does not, or jobs overtake each other unasked."""
    services.database.change("DELETE FROM job")
    luids = queue(services, *kinds)
    faults = [HoldJobs(job_kind=kind) for kind in held]
    control = Control(faults=faults)
    ready = [
        luid
        for luid, kind in zip(luids, kinds, strict=True)
        if kind not in held and None not in held
    ]
    for _ in range(2):
        chosen = choose(services, control, order)
        if not ready:
            assert chosen is None
        elif order == "fifo":
            assert chosen == ready[0]
        else:
            assert chosen in ready
    # Each job is counted once, however often it was passed over.
    for armed, fault in zip(control.faults(), faults, strict=False):
        counted = [kind for kind in kinds if fault.job_kind in (None, kind)]
        assert (armed.seen, armed.fired) == (len(counted), len(counted))
    queue(services, UPDATE)
    choose(services, control, order)
    for armed, fault in zip(control.faults(), faults, strict=False):
        counted = [kind for kind in (*kinds, UPDATE) if fault.job_kind in (None, kind)]
        assert armed.seen == len(counted)


def test_ten_thousand_queued_jobs(services: Services):
    """Prevents: the worker, or a request for a refresh, reads the whole queue each time."""
    services.database.change("DELETE FROM job")
    held = Control(faults=[HoldJobs(job_kind=REFRESH)])
    actions: dict[str, Callable[[], object]] = {
        "next": lambda: choose(services, Control()),
        "held": lambda: choose(services, held),
        "refresh": lambda: jobs.unfinished_job_of(services.database, "none", kind=REFRESH),
    }
    queue(services, REFRESH, REFRESH, PUBLISH)
    few = {name: usual_seconds(action) for name, action in actions.items()}
    services.database.change(
        "WITH RECURSIVE copy (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copy WHERE n < ?)"
        " INSERT INTO job (luid, site, user, kind, title, payload, status, created_at)"
        " SELECT luid || n, site, user, kind, title, payload, status, created_at"
        " FROM copy, (SELECT * FROM job ORDER BY number LIMIT 1)",
        MANY,
    )
    many = {name: usual_seconds(action) for name, action in actions.items()}
    # Reading them all takes some thousand times as long.
    assert all(many[name] < 20 * few[name] for name in actions), (few, many)


def usual_seconds(action: Callable[[], object]) -> float:
    # The first time, a fault counts the jobs that are new to it.
    action()
    seconds = []
    for _ in range(20):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def test_a_second_refresh(services: Services):
    """Prevents: a refresh is refused for another data source's, or for one that has ended."""
    services.database.change("DELETE FROM job")
    (first,) = queue(services, REFRESH)

    def is_busy(datasource: str) -> bool:
        return jobs.unfinished_job_of(services.database, datasource, kind=REFRESH)

    assert (is_busy("d0"), is_busy("d1")) == (True, False)
    assert not jobs.unfinished_job_of(services.database, "d0", kind=UPDATE)
    jobs.finish_job(services.database, first, status=jobs.SUCCESS, completed_at=NOW)
    assert not is_busy("d0")


def test_latest_jobs(services: Services):
    """Prevents: the status page reads ten thousand jobs to show twenty."""
    services.database.change("DELETE FROM job")
    luids = queue(services, *[REFRESH] * 5)
    site = seeded_luid("site", "")
    assert [job.luid for job in jobs.latest_jobs(services.database, site, most=2)] == luids[:-3:-1]
    assert len(jobs.latest_jobs(services.database, site)) == 5


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
        worker = Worker(services)
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
        ended = [database.find(Job, luid=row["luid"]) for row in rows]
        first, second = ((each and each.notes) or "" for each in ended)
        assert notes in first
        assert "was deleted" in second
