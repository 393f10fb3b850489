from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import call, code_of, default_project, signed_in

START = datetime(2026, 1, 1, tzinfo=UTC)


class Jobs:
    """Three publishes in the background, each on a day of its own; the last one has failed."""

    def __init__(self, sandbox: Sandbox, now: list[datetime], good: Path, bad: Path):
        self.server = signed_in(sandbox)
        self.sandbox = sandbox
        for name, file in (("A", good), ("B", good), ("C", bad)):
            item = tsc.DatasourceItem(default_project(self.server), name=name)
            job = self.server.datasources.publish(item, file, "Overwrite", as_job=True)
            while self.server.jobs.get_by_id(job.id).completed_at is None:
                pass
            now[0] += timedelta(days=1)

    def titles(self, query: str = "") -> list[str | None]:
        response = call(self.sandbox, "GET", f"sites/{{site}}/jobs{query}", server=self.server)
        assert response.status_code == 200, response.text
        found = tsc.BackgroundJobItem.from_response(response.content, self.server.namespace)
        return [job.title for job in found]


@pytest.fixture
def jobs(start_sandbox: Callable[..., Sandbox], tmp_path: Path, one_row: Path) -> Jobs:
    now = [START]
    bad = tmp_path / "bad.hyper"
    bad.write_bytes(b"bad")
    sandbox = start_sandbox(clock=lambda: now[0], session_minutes=60 * 24 * 9)
    return Jobs(sandbox, now, one_row, bad)


def test_filters_order_and_pages(jobs: Jobs):
    # Prevents: an orchestrator that looks for its jobs finds others, or all of them.
    assert jobs.titles() == ["C", "B", "A"]
    second_day = "2026-01-02T00:00:00Z"
    for query, expected in {
        "status:eq:Failed": ["C"],
        "status:in:[Success,Failed]": ["C", "B", "A"],
        "jobType:eq:publish_datasource,title:eq:B": ["B"],
        "jobType:eq:refresh_extracts": [],
        f"createdAt:gt:{second_day}": ["C"],
        f"startedAt:gte:{second_day}": ["C", "B"],
        f"completedAt:lt:{second_day}": ["A"],
        "completedAt:eq:2026-01-02T01:00:00%2B01:00": ["B"],
        # As text, 100 comes before 50.
        "progress:gt:50": ["C", "B", "A"],
        "progress:lte:50": [],
        "notes:has:problem publishing": ["C"],
        "title:has:A": ["A"],
        "subtitle:has:A": [],
    }.items():
        assert jobs.titles(f"?filter={query}") == expected, query
    assert jobs.titles("?sort=createdAt:asc") == ["A", "B", "C"]
    assert jobs.titles("?sort=status:asc,title:desc") == ["C", "B", "A"]
    assert jobs.titles("?pageSize=2&pageNumber=2") == ["A"]


@pytest.mark.parametrize(
    "query",
    [
        "filter=createdAt:gt:yesterday",
        "filter=createdAt:gt:2026-01-01T00:00:00",
        "filter=createdAt:has:2026",
        "filter=progress:gt:half",
        "filter=status:has:Fail",
        "filter=notes:eq:x",
        "filter=priority:eq:50",
    ],
)
def test_senseless_filters(shared_sandbox: Sandbox, shared_server: tsc.Server, query: str):
    # Prevents: a filter that real servers do not know is passed over in silence.
    response = call(shared_sandbox, "GET", f"sites/{{site}}/jobs?{query}", server=shared_server)
    assert code_of(response) == "400065"
