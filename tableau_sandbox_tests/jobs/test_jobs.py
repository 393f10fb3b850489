"""Jobs: their order, their faults, and the list of them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import (
    call,
    code_of,
    default_project,
    publish,
    rows_on_server,
    signed_in,
)

SOME_TIME = 60


@pytest.fixture
def slow(start_sandbox: Callable[..., Sandbox]) -> Sandbox:
    """A sandbox whose jobs stay in progress until its clock is moved."""
    return start_sandbox(job_delay=SOME_TIME)


def publish_job(server: tsc.Server, file: Path, *, name: str = "Flights") -> tsc.JobItem:
    item = tsc.DatasourceItem(default_project(server), name=name)
    return server.datasources.publish(item, file, "Overwrite", as_job=True)


def status_of(server: tsc.Server, job: tsc.JobItem) -> str:
    return next(found.status for found in server.jobs.filter() if found.id == job.id)


def test_jobs_wait_their_turn_and_can_be_cancelled(
    slow: Sandbox, tmp_path: Path, one_row: Path, two_rows: Path
):
    # Prevents: jobs overtake each other, or a cancelled one takes effect all the same.
    server = signed_in(slow)
    first, second = publish_job(server, one_row), publish_job(server, two_rows)
    slow.wait_until_running()
    assert [status_of(server, job) for job in (first, second)] == ["InProgress", "Pending"]
    assert server.datasources.get()[0] == []
    server.jobs.cancel(second)
    assert server.jobs.get_by_id(second.id).finish_code == 2
    slow.control.advance(SOME_TIME)
    assert server.jobs.wait_for_job(first, timeout=20).finish_code == 0
    (item,) = server.datasources.get()[0]
    assert rows_on_server(server, item.id) == [[1, "one"]]
    with pytest.raises(tsc.ServerResponseError, match="403091"):
        server.jobs.cancel(second)
    assert list((tmp_path / "sandbox" / "incoming").iterdir()) == []


def test_running_job_can_be_cancelled_before_it_takes_effect(slow: Sandbox, one_row: Path):
    # Prevents: a cancel that was granted comes too late.
    server = signed_in(slow)
    job = publish_job(server, one_row)
    slow.wait_until_running()
    server.jobs.cancel(job)
    publish_job(server, one_row, name="Following")
    slow.control.advance(SOME_TIME)
    slow.wait_until_running()
    assert server.jobs.get_by_id(job.id).finish_code == 2
    assert server.datasources.get()[0] == []


def test_name_taken_while_the_job_waited(slow: Sandbox, one_row: Path):
    # Prevents: a job does what the same request would now be refused.
    server = signed_in(slow)
    item = tsc.DatasourceItem(default_project(server), name="Flights")
    job = server.datasources.publish(item, one_row, "CreateNew", as_job=True)
    publish(server, one_row, name="Flights")
    slow.wait_until_running()
    slow.control.advance(SOME_TIME)
    with pytest.raises(tsc.server.endpoint.exceptions.JobFailedException) as caught:
        server.jobs.wait_for_job(job, timeout=20)
    assert "already exists" in caught.value.job.status_notes[0]["text"]


def test_jobs_left_behind_have_failed(slow: Sandbox, one_row: Path):
    # Prevents: a client waits for ever for a job that a stopped server had taken in.
    server = signed_in(slow)
    jobs = [publish_job(server, one_row) for _ in range(2)]
    slow.wait_until_running()
    slow.restart()
    for job in jobs:
        found = server.jobs.get_by_id(job.id)
        assert found.finish_code == 1
        assert found.completed_at is not None
        assert "stopped before the job had finished" in found.status_notes[0]["text"]


START = datetime(2026, 1, 1, tzinfo=UTC)


def test_filters_order_and_pages(
    start_sandbox: Callable[..., Sandbox], tmp_path: Path, one_row: Path
):
    # Prevents: an orchestrator that looks for its jobs finds others, or all of them.
    now, bad = [START], tmp_path / "bad.hyper"
    bad.write_bytes(b"bad")
    sandbox = start_sandbox(clock=lambda: now[0], session_minutes=60 * 24 * 9)
    server = signed_in(sandbox)
    # Each on a day of its own; the last one fails.
    for name, file in (("A", one_row), ("B", one_row), ("C", bad)):
        publish_job(server, file, name=name)
        sandbox.wait_until_idle()
        now[0] += timedelta(days=1)

    def titles(query: str = "") -> list[str | None]:
        response = call(sandbox, "GET", f"sites/{{site}}/jobs{query}", server=server)
        found = tsc.BackgroundJobItem.from_response(response.content, server.namespace)
        return [job.title for job in found]

    assert titles() == ["C", "B", "A"]
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
        assert titles(f"?filter={query}") == expected, query
    assert titles("?sort=createdAt:asc") == ["A", "B", "C"]
    assert titles("?sort=status:asc,title:desc") == ["C", "B", "A"]
    assert titles("?pageSize=2&pageNumber=2") == ["A"]


def test_senseless_filters(shared_sandbox: Sandbox, shared_server: tsc.Server):
    # Prevents: a filter that real servers do not know is passed over in silence.
    for wrong in (
        *("createdAt:gt:yesterday", "createdAt:gt:2026-01-01T00:00:00", "createdAt:has:2026"),
        *("progress:gt:half", "status:has:Fail", "notes:eq:x", "priority:eq:50"),
    ):
        path = f"sites/{{site}}/jobs?filter={wrong}"
        assert code_of(call(shared_sandbox, "GET", path, server=shared_server)) == "400065", wrong
