from pathlib import Path

import pytest
import tableauserverclient as tsc

from tableau_pipeline_tests.waiting import until
from tableau_sandbox.faults import FailJob, HoldJobs, SlowJob
from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.jobs.test_jobs import publish_job, status_of

ONE, TWO = [[1, "one"]], [[1, "one"], [2, "two"]]


@pytest.mark.parametrize("notes", ["Out of memory.", None])
def test_job_that_fails(sandbox: Sandbox, server: tsc.Server, one_row: Path, notes: str | None):
    # Prevents: a job that fails silently passes for one that succeeded.
    armed = sandbox.control.add(FailJob(notes=notes))
    with pytest.raises(tsc.server.endpoint.exceptions.JobFailedException) as caught:
        server.jobs.wait_for_job(publish_job(server, one_row), timeout=20)
    texts = [note["text"] for note in caught.value.job.status_notes]
    assert texts == ([notes] if notes else [])
    assert server.datasources.get()[0] == []
    assert list((sandbox.data_dir / "incoming").iterdir()) == []
    done = server.jobs.wait_for_job(publish_job(server, one_row), timeout=20)
    assert (done.finish_code, armed.fired) == (0, 1)


def test_held_jobs_wait_until_released(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: what a client does while its job is queued cannot be tried.
    armed = sandbox.control.add(HoldJobs())
    job, cancelled = publish_job(server, one_row), publish_job(server, one_row)
    server.jobs.cancel(cancelled)
    until(lambda: armed.fired, seconds=10, what="no job is held")
    assert status_of(server, job) == "Pending"
    sandbox.control.clear(armed.number)
    assert server.jobs.wait_for_job(job, timeout=20).finish_code == 0
    assert server.jobs.get_by_id(cancelled.id).finish_code == 2


def test_slow_job_ends_when_the_clock_says_so(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: nobody tries a job of an hour, because it takes one.
    armed = sandbox.control.add(SlowJob(seconds=3600))
    job = publish_job(server, one_row)
    sandbox.wait_until_running()
    assert server.datasources.get()[0] == []
    sandbox.control.advance(3600)
    done = server.jobs.wait_for_job(job, timeout=20)
    assert done.finish_code == 0
    assert (done.completed_at - done.started_at).total_seconds() >= 3600
    assert armed.fired == 1


def test_stop_does_not_wait_for_a_slow_job(sandbox: Sandbox, server: tsc.Server, one_row: Path):
    # Prevents: a sandbox with a slow job cannot be stopped.
    sandbox.control.add(SlowJob(seconds=3600))
    job = publish_job(server, one_row)
    sandbox.wait_until_running()
    sandbox.restart()
    assert server.jobs.get_by_id(job.id).finish_code == 1


def test_sessions_and_uploads_follow_the_clock(sandbox: Sandbox, server: tsc.Server):
    # Prevents: a clock that only some of the sandbox follows.
    upload = server.fileuploads.initiate()
    sandbox.control.advance(240 * 60)
    with pytest.raises(tsc.NotSignedInError, match="401002"):
        server.projects.get()
    server.auth.sign_in(tsc.TableauAuth(sandbox.user, sandbox.password))
    block = tsc.server.RequestFactory.Fileupload.chunk_req(b"x")
    server.fileuploads.append(upload, *block)
    sandbox.control.advance(20 * 3600)
    server.auth.sign_in(tsc.TableauAuth(sandbox.user, sandbox.password))
    with pytest.raises(tsc.ServerResponseError, match="404015"):
        server.fileuploads.append(upload, *block)
    with pytest.raises(ValueError, match="ahead"):
        sandbox.control.advance(-1)
