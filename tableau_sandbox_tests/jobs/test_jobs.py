from collections.abc import Callable
from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import (
    call,
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
    raw = call(slow, "GET", f"sites/{{site}}/jobs/{first.id}", server=server).text
    assert 'progress="0"' in raw
    assert "finishCode" not in raw
    assert "completedAt" not in raw
    assert server.datasources.get()[0] == []
    server.jobs.cancel(second)
    assert server.jobs.get_by_id(second.id).finish_code == 2
    slow.control.advance(SOME_TIME)
    assert server.jobs.wait_for_job(first, timeout=20).finish_code == 0
    (item,) = server.datasources.get()[0]
    assert rows_on_server(server, item.id) == [[1, "one"]]
    for job in (first, second):
        with pytest.raises(tsc.ServerResponseError, match="403091"):
            server.jobs.cancel(job)
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
