"""The worker of jobs: which one is next, and when the database fails under it."""

from collections.abc import Generator

import pytest

from tableau_sandbox.control import Control
from tableau_sandbox.faults import HoldJobs
from tableau_sandbox.identity import seeded_luid
from tableau_sandbox.jobs.kinds import PUBLISH, REFRESH, UPDATE
from tableau_sandbox.options import ADMIN, Options
from tableau_sandbox.services import Services, open_services
from tableau_sandbox.store import jobs
from tableau_sandbox.store.jobs import unfinished_jobs

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
                parameters={
                    "datasource": {"id": f"d{number}", "name": "x"},
                },
                created_at=NOW,
            ).luid
            for number, kind in enumerate(kinds)
        ]


def choose(services: Services, control: Control, order: str = "fifo") -> str | None:
    job = control.choose_job(unfinished_jobs(services.database), order)
    return job.luid if job else None


@pytest.mark.parametrize("order", ["fifo", "any"])
@pytest.mark.parametrize(
    ("held", "ready"), [([], "0123"), ([UPDATE], "03"), ([UPDATE, PUBLISH], "3"), ([None], "")]
)
def test_next_job(services: Services, held: list[str | None], ready: str, order: str):
    """Prevents: a held job runs, one that may run does not, or jobs overtake each other unasked."""
    services.database.change("DELETE FROM job")
    kinds = [PUBLISH, UPDATE, UPDATE, REFRESH]
    luids = queue(services, *kinds)
    control = Control(faults=[HoldJobs(job_kind=kind) for kind in held])
    allowed = [luids[int(number)] for number in ready]
    for _ in range(3):
        chosen = choose(services, control, order)
        assert chosen in (allowed[:1] if order == "fifo" else allowed) or not (allowed or chosen)
    # Each job is counted once, however often it was passed over.
    queue(services, UPDATE)
    choose(services, control, order)
    for armed in control.faults():
        kind = armed.fault.job_kind
        counted = len([each for each in (*kinds, UPDATE) if kind in (None, each)])
        assert (armed.seen, armed.fired) == (counted, counted)
