import json
import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from time import sleep
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.server import Timeouts
from tableau_pipeline.publishing.jobs import Jobs
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.conftest import hyper_file
from tableau_pipeline_tests.refresh.support.pipeline import LOG
from tableau_pipeline_tests.refresh.support.proxies import Proxy
from tableau_sandbox.faults import HoldJobs, SlowJob
from tableau_sandbox.testing import Sandbox

TABLE = {"target-schema": "Extract", "target-table": "Extract"}
CLEAR = json.dumps({"actions": [{"action": "delete", **TABLE, "condition": True}]})


@pytest.fixture
def luid(eyes: TableauSite, tmp_path: Path) -> str:
    """A data source to update."""
    name, project = f"Sales {uuid4().hex[:8]}", eyes.project("Default", create=False)
    upload = eyes.upload(hyper_file(tmp_path, pa.table({"number": range(5)})))
    job = eyes.publish(upload, name=name, project_id=project, mode=PublishMode.CREATE)
    assert Jobs(eyes, Timeouts(first_poll=0.1), sleep, LOG).wait(job)
    made = eyes.find_by_name(name, project_id=project)
    assert made
    return made.luid


@pytest.fixture
def send(eyes: TableauSite, luid: str) -> Callable[[], str]:
    """Begins a job that clears the data source."""

    def send() -> str:
        job = eyes.update(luid, batch=CLEAR, upload=None, request_id=str(uuid4()))
        assert job
        return job

    return send


class Waiting(Proxy):
    """Waits for jobs; sleeping moves the clock of the server, so that nobody really waits.

    Attributes:
        looks: when the server was asked for a job, in seconds since the beginning.
        slept: for how many seconds.
    """

    def __init__(
        self, sandbox: Sandbox, site: TableauSite, at: Callable[[float], None] = lambda now: None
    ) -> None:
        super().__init__(site)
        self._sandbox, self._at = sandbox, at
        self.looks: list[float] = []
        self.slept = 0.0

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name == "job":
            self.looks.append(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self._sandbox.advance(seconds)
        self._at(self.slept)

    def jobs(self, **timeouts: float) -> Jobs:
        site: Any = self
        return Jobs(site, Timeouts(**timeouts), self.sleep, LOG)


def test_looks_become_rare(
    eyes: TableauSite,
    sandbox: Sandbox,
    send: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
):
    """Prevents: a job of an hour is asked for thousands of times, or a quick one hardly ever."""
    caplog.set_level(logging.INFO, LOG.name)
    waiting = Waiting(sandbox, eyes)
    with sandbox.armed(HoldJobs()):
        job = send()
        waiting.jobs(queue=1000).wait(job)
    assert waiting.looks[:3] == [0, 0.25, 0.625]
    later = [at for at in waiting.looks if at >= 4]
    pauses = [second - first for first, second in pairwise(later)][:-2]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 60
    assert all(second - first >= 1 for first, second in pairwise(later)), "also near the end"
    assert len(waiting.looks) < 35
    assert f"Waiting for job {job} on the server (in the queue)" in str(caplog.messages)


def test_job_that_takes_too_long_to_start_is_cancelled(
    eyes: TableauSite, sandbox: Sandbox, send: Callable[[], str]
):
    """Prevents: one job that hangs stops all refreshes until somebody looks after it."""
    waiting = Waiting(sandbox, eyes)
    with sandbox.armed(HoldJobs()):
        job = send()
        status = waiting.jobs(queue=100, job=10).wait(job)
    assert status
    assert status.outcome is Outcome.CANCELLED
    note = "It was cancelled because it did not start within 100 s (queue_timeout)."
    assert status.notes == note
    assert waiting.slept == pytest.approx(100, abs=5)
    found = eyes.job(job)
    assert found
    assert found.outcome is Outcome.CANCELLED, "it never takes effect"


def test_job_that_runs_too_long_is_cancelled(
    eyes: TableauSite, sandbox: Sandbox, send: Callable[[], str]
):
    """Prevents: a job that runs for ever is waited for as long as the queue may take."""
    waiting = Waiting(sandbox, eyes)
    with sandbox.armed(SlowJob(seconds=1000)):
        job = send()
        sandbox.wait_until_running()
        status = waiting.jobs(queue=1000, job=100).wait(job)
    assert status
    assert status.outcome is Outcome.CANCELLED
    assert "did not finish within 100 s (job_timeout)" in status.notes
    assert waiting.slept == pytest.approx(100, abs=5)
    # The sandbox goes on to its next job when the time of this one is over.
    sandbox.advance(1000)


def test_job_that_ends_at_the_last_moment(
    eyes: TableauSite, sandbox: Sandbox, send: Callable[[], str]
):
    """Prevents: an update that took effect while it was given up passes for one that did not."""
    held = sandbox.control.add(HoldJobs())
    job = send()

    class TooLate(Waiting):
        def cancel(self, job_id: str) -> bool:
            sandbox.control.clear(held.number)
            sandbox.wait_until_idle()
            return eyes.cancel(job_id)

    status = TooLate(sandbox, eyes).jobs(queue=5).wait(job)
    assert status
    assert status.outcome is Outcome.DONE
