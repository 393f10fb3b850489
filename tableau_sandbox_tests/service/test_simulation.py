"""What the sandbox offers to tests that wait for its jobs, or change its quirks."""

from pathlib import Path

import pytest

from tableau_sandbox_tests.conftest import NewServer
from tableau_sandbox_tests.jobs.test_jobs import publish_job
from tableau_sandbox_tests.samples import publish
from tableau_sandbox_tests.updates.test_update_data import CLEAR, update


def test_waiting_has_an_end(new_server: NewServer, one_row: Path):
    # Prevents: a test waits for a job that it holds, or for ever.
    sandbox, server = new_server(job_delay=60)
    with pytest.raises(TimeoutError, match="no jobs"):
        sandbox.wait_until_running(timeout=0.05)
    with sandbox.held_jobs("publish_datasource"):
        publish_job(server, one_row)
        sandbox.wait_until_idle()
    sandbox.wait_until_running()
    with pytest.raises(TimeoutError, match="publish_datasource 'Flights' InProgress"):
        sandbox.wait_until_idle(timeout=0.05)


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
