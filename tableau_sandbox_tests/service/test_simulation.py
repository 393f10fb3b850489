"""What the sandbox offers to whoever lets it play through histories step by step."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.jobs.test_jobs import publish_job, status_of
from tableau_sandbox_tests.samples import publish
from tableau_sandbox_tests.updates.test_update_data import CLEAR, update

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_jobs_are_held_and_awaited(new_server: NewServer, one_row: Path):
    # Prevents: a simulation goes on before a job has ended, or waits for one that it holds.
    sandbox, server = new_server(clock=lambda: START, job_delay=0.3)
    item = publish(server, one_row)
    sandbox.wait_until_idle()
    with sandbox.held_jobs("publish_datasource"):
        held = publish_job(server, one_row)
        sandbox.wait_until_idle()
        running = update(server, item, CLEAR)
        sandbox.wait_until_running()
        assert [status_of(server, job) for job in (held, running)] == ["Pending", "InProgress"]
        with pytest.raises(TimeoutError, match="publish_datasource 'Flights' Pending"):
            sandbox.wait_until_idle(timeout=0.05)
        sandbox.advance(0.3)
        sandbox.wait_until_idle()
        assert [status_of(server, job) for job in (held, running)] == ["Pending", "Success"]
    sandbox.wait_until_running()
    sandbox.advance(0.3)
    sandbox.wait_until_idle()
    assert status_of(server, held) == "Success"
    with pytest.raises(TimeoutError, match="no jobs"):
        sandbox.wait_until_running(timeout=0.05)


def test_quirks_can_change_later(new_server: NewServer, one_row: Path):
    # Prevents: a simulation has to start a sandbox for each answer.
    sandbox, server = new_server()
    item = publish(server, one_row)
    first = update(server, item, CLEAR, id="x")
    assert update(server, item, CLEAR, id="x").id == first.id
    sandbox.set_quirks(repeated_request="empty-job")
    again = update(server, item, CLEAR, id="x")
    assert (again.id, again.finish_code, again.type) == (None, -1, None)
    sandbox.wait_until_idle()
    sandbox.restart()
    assert update(server, item, CLEAR, id="x").id is None
    with pytest.raises(TypeError, match="no quirks: tls"):
        sandbox.set_quirks(tls=True)
