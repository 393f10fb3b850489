import json
import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.refresh import waiting
from tableau_pipeline.refresh.waiting import wait_for_job
from tableau_pipeline.sandbox.control.faults import FailJob, HoldJobs
from tableau_pipeline.sandbox.testing import Sandbox
from tableau_pipeline_tests.publishing.conftest import armed, hyper_file
from tableau_pipeline_tests.refresh.conftest import ANALYST
from tableau_pipeline_tests.refresh.pipeline import session

LOG = logging.getLogger("tableau_pipeline_tests.refresh")
TABLE = {"target-schema": "Extract", "target-table": "Extract"}
CLEAR = json.dumps({"actions": [{"action": "delete", **TABLE, "condition": True}]})


@pytest.fixture
def luid(eyes: TableauSite, tmp_path: Path) -> str:
    """A data source to update."""
    made = eyes.publish(
        hyper_file(tmp_path, pa.table({"number": range(5)})),
        name=f"Sales {uuid4().hex[:8]}",
        project_id=eyes.project("Default", create=False),
        mode=PublishMode.CREATE,
    )
    assert isinstance(made, RemoteDatasource)
    return made.luid


@pytest.fixture
def send(eyes: TableauSite, luid: str) -> Callable[[], str]:
    """Begins a job that clears the data source."""

    def send() -> str:
        job = eyes.update(luid, batch=CLEAR, payload=None, request_id=str(uuid4()))
        assert job
        return job

    return send


class FakeTime:
    """A clock that only sleeping moves, so that nobody waits; `at` is called with each moment."""

    def __init__(self, at: Callable[[float], None] = lambda now: None) -> None:
        self.now, self._at = 0.0, at

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._at(self.now)


class Looks:
    """A server that notes when it is asked for a job."""

    def __init__(self, site: TableauSite, clock: FakeTime) -> None:
        self._site, self._clock = site, clock
        self.at: list[float] = []

    def __getattr__(self, name: str) -> object:
        if name == "job":
            self.at.append(self._clock.now)
        return getattr(self._site, name)


def test_finished_job_costs_one_look(
    eyes: TableauSite, send: Callable[[], str], monkeypatch: pytest.MonkeyPatch
):
    # Prevents: every refresh waits although its job is done.
    job = send()
    wait_for_job(eyes, job, timeout=30, log=LOG)
    clock = FakeTime()
    monkeypatch.setattr(waiting, "time", clock)
    status = wait_for_job(eyes, job, timeout=30, log=LOG)
    assert status
    assert status.outcome is Outcome.DONE
    assert clock.now == 0


def test_looks_become_rare(
    eyes: TableauSite,
    sandbox: Sandbox,
    send: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    # Prevents: a job of an hour is asked for thousands of times, or a quick one hardly ever.
    caplog.set_level(logging.INFO, LOG.name)
    clock = FakeTime()
    looks = Looks(eyes, clock)
    monkeypatch.setattr(waiting, "time", clock)
    with armed(sandbox, HoldJobs()):
        job = send()
        wait_for_job(looks, job, timeout=1000, log=LOG)
    assert looks.at[:3] == [0, 0.25, 0.625]
    later = [at for at in looks.at if at >= 2]
    pauses = [second - first for first, second in pairwise(later)]
    assert pauses[0] == 2
    assert pauses == sorted(pauses)
    assert pauses[-1] == 60
    assert len(looks.at) < 30
    assert f"Waiting for job {job} on the server (2 s so far)" in caplog.text


def test_job_that_takes_too_long_is_cancelled(
    eyes: TableauSite,
    sandbox: Sandbox,
    send: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
):
    # Prevents: one job that hangs stops all refreshes until somebody looks after it.
    clock = FakeTime()
    monkeypatch.setattr(waiting, "time", clock)
    with armed(sandbox, HoldJobs()):
        job = send()
        status = wait_for_job(eyes, job, timeout=100, log=LOG)
    assert status
    assert status.outcome is Outcome.CANCELLED
    assert status.notes == "It was cancelled because it was not finished after 100 s."
    assert clock.now == 100
    found = eyes.job(job)
    assert found
    assert found.outcome is Outcome.CANCELLED, "it never takes effect"


def test_job_that_cannot_be_cancelled(
    eyes: TableauSite,
    sandbox: Sandbox,
    send: Callable[[], str],
    luid: str,
    monkeypatch: pytest.MonkeyPatch,
):
    # Prevents: the next batch is sent although this one may still take effect, after it.
    monkeypatch.setattr(waiting, "time", FakeTime())
    analyst = session(sandbox, ANALYST.name, ANALYST.password)
    with armed(sandbox, HoldJobs()), analyst as other:
        job = send()
        with pytest.raises(RefreshError) as caught:
            wait_for_job(other, job, timeout=5, log=LOG)
    for part in (job, eyes.url, "after 5 s", "may still take effect", "Jobs page"):
        assert part in str(caught.value)


def test_job_that_ends_at_the_last_moment(
    eyes: TableauSite,
    sandbox: Sandbox,
    send: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
):
    # Prevents: an update that took effect while it was given up passes for one that did not.
    held = sandbox.control.add(HoldJobs())
    job = send()

    def end(now: float) -> None:
        if now >= 5:
            sandbox.control.clear(held.number)
            for _ in range(1000):
                status = eyes.job(job)
                if status and status.outcome:
                    break

    monkeypatch.setattr(waiting, "time", FakeTime(end))
    status = wait_for_job(eyes, job, timeout=5, log=LOG)
    assert status
    assert status.outcome is Outcome.DONE


def test_failed_job(eyes: TableauSite, sandbox: Sandbox, send: Callable[[], str]):
    # Prevents: the reason for a failure is lost on the way.
    with armed(sandbox, FailJob(notes="Out of memory.")):
        status = wait_for_job(eyes, send(), timeout=30, log=LOG)
    assert status
    assert (status.outcome, status.notes) == (Outcome.FAILED, "Out of memory.")


def test_forgotten_job(eyes: TableauSite):
    # Prevents: a job that the server forgot is waited for.
    nowhere = "00000000-0000-0000-0000-000000000000"
    assert wait_for_job(eyes, nowhere, timeout=30, log=LOG) is None
