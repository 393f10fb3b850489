"""Waiting for a job of the server, on its clock, so that nobody really waits."""

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
def send(eyes: TableauSite, tmp_path: Path) -> Callable[[], str]:
    """Begins a job that clears a data source."""
    name, project = f"Sales {uuid4().hex[:8]}", eyes.project("Default", create=False)
    upload = eyes.upload(hyper_file(tmp_path, pa.table({"number": range(5)})))
    job = eyes.publish(upload, name=name, project_id=project, mode=PublishMode.CREATE)
    assert Jobs(eyes, Timeouts(first_poll=0.02), sleep, LOG).wait(job)
    luid = eyes.find_by_name(name, project_id=project).luid
    return lambda: eyes.update(luid, batch=CLEAR, upload=None, request_id=str(uuid4()))


class Waiting(Proxy):
    """Waits for jobs; sleeping moves the clock of the server.

    Attributes:
        looks: when the server was asked for a job, in seconds since the beginning.
        slept: for how many seconds.
    """

    def __init__(self, sandbox: Sandbox, site: TableauSite) -> None:
        super().__init__(site)
        self._sandbox, self.slept = sandbox, 0.0
        self.looks: list[float] = []

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name == "job":
            self.looks.append(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self._sandbox.advance(seconds)

    def wait(self, job_id: str, /, **timeouts: float) -> Any:
        site: Any = self
        return Jobs(site, Timeouts(**timeouts), self.sleep, LOG).wait(job_id)


@pytest.fixture
def waiting(sandbox: Sandbox, eyes: TableauSite) -> Waiting:
    return Waiting(sandbox, eyes)


def test_job_that_takes_too_long_to_start(
    waiting: Waiting, sandbox: Sandbox, send: Callable[[], str], caplog: pytest.LogCaptureFixture
):
    """Prevents: a job of an hour is asked for thousands of times, or a quick one hardly ever; one
    that hangs stops all refreshes until somebody looks after it."""
    caplog.set_level(logging.INFO, LOG.name)
    with sandbox.armed(HoldJobs()):
        job = send()
        status = waiting.wait(job, queue=1000, job=10)
    assert waiting.looks[:3] == [0, 0.25, 0.625]
    later = [at for at in waiting.looks if at >= 4]
    pauses = [second - first for first, second in pairwise(later)][:-2]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 60
    assert all(second - first >= 1 for first, second in pairwise(later)), "also near the end"
    assert len(waiting.looks) < 35
    assert f"Waiting for job {job} on the server (in the queue)" in str(caplog.messages)
    note = "It was cancelled because it did not start within 1000 s (queue_timeout)."
    assert (status.outcome, status.notes) == (Outcome.CANCELLED, note)
    assert waiting.slept == pytest.approx(1000, abs=5)
    assert waiting.job(job).outcome is Outcome.CANCELLED, "it never takes effect"


def test_job_that_runs_too_long_is_cancelled(
    waiting: Waiting, sandbox: Sandbox, send: Callable[[], str]
):
    """Prevents: a job that runs for ever is waited for as long as the queue may take."""
    with sandbox.armed(SlowJob(seconds=1000)):
        job = send()
        sandbox.wait_until_running()
        status = waiting.wait(job, queue=1000, job=100)
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

    assert TooLate(sandbox, eyes).wait(job, queue=5).outcome is Outcome.DONE
