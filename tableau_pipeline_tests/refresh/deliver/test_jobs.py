"""Jobs of the server that outlive a refresh, take too long, or end otherwise than well."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tableau_pipeline.core.checkpoint import Outcome
from tableau_pipeline.errors import RefreshError
from tableau_pipeline_tests.refresh.deliver.test_overtaken import At
from tableau_pipeline_tests.refresh.recover.test_crash import (
    assert_recovered,
    first,
    new_file,
    new_rows,
)
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import TIMEOUTS, Pipeline, session
from tableau_pipeline_tests.refresh.support.proxies import Proxy
from tableau_pipeline_tests.refresh.support.server_jobs import jobs
from tableau_sandbox.faults import HoldJobs

IMPATIENT = replace(TIMEOUTS, queue=0.2)


class Releasing(Proxy):
    """A server whose jobs are held until a refresh asks for one a second time."""

    def __init__(self, behind: Any, release: Callable[[], object]) -> None:
        super().__init__(behind)
        self._release, self._looks = release, 0

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name in ("job", "jobs"):
            self._looks += 1
            if self._looks == 2:
                self._release()


class Stubborn(Proxy):
    """A server that ends no job: it belongs to another user, or is too far on."""

    def cancel(self, job_id: str) -> bool:
        return False


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("step", ["job", "look"], ids=["job unknown", "job known"])
@pytest.mark.parametrize(
    "before", [first, pytest.param(new_file, marks=pytest.mark.slow), new_rows]
)
def test_job_that_still_runs_at_the_next_start(
    pipeline: Pipeline, step: str, before: Callable[[Pipeline], None]
):
    """Prevents: a late job of a killed run puts its old rows over newer ones."""
    before(pipeline)
    held = pipeline.sandbox.control.add(HoldJobs())
    assert killed_before(pipeline, step)
    began = len(jobs(pipeline))
    seen: list[int] = []

    def release() -> None:
        seen.append(len(jobs(pipeline)))
        pipeline.sandbox.control.clear(held.number)

    pipeline.model("flights", flights(10))
    pipeline.run(around={"around_server": lambda server: Releasing(server, release)})
    assert seen == [began], "nothing was sent beside it"
    assert Outcome.CANCELLED not in {job.outcome for job in jobs(pipeline)}
    assert_recovered(pipeline)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("before", [first, new_file, new_rows])
def test_job_that_takes_too_long_is_cancelled(
    pipeline: Pipeline, before: Callable[[Pipeline], None]
):
    """Prevents: a cancelled job passes for done, or for one that may still take effect."""
    before(pipeline)
    with pipeline.sandbox.held_jobs(), pytest.raises(RefreshError) as caught:
        pipeline.run(around={"timeouts": IMPATIENT})
    (left,) = pipeline.journal.intents()
    assert left.outcome is Outcome.CANCELLED
    for part in (f"job {left.job_id}", "cancelled", "what it held before", "sends it again"):
        assert part in str(caught.value)
    assert "interrupted" not in pipeline.decide()
    pipeline.run()
    assert_recovered(pipeline)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("before", [first, new_file, new_rows])
@pytest.mark.slow
def test_time_out_leaves_the_intent_open(pipeline: Pipeline, before: Callable[[Pipeline], None]):
    """Prevents: a job that takes longer than we wait is taken for failed, or for done."""
    before(pipeline)
    impatient = {"timeouts": IMPATIENT, "around_server": Stubborn}
    with pipeline.sandbox.held_jobs():
        with pytest.raises(RefreshError) as caught:
            pipeline.run(around=impatient)
        (left,) = pipeline.journal.intents()
        assert left.outcome is None
        phrases = ("did not start", "may still take effect", "next run", "Jobs page")
        for part in (f"Job {left.job_id}", *phrases):
            assert part in str(caught.value)
        with pytest.raises(RefreshError, match=f"Job {left.job_id}"):
            pipeline.run(around=impatient)
    assert [each.request_id for each in pipeline.journal.intents()] == [left.request_id]
    pipeline.run()
    assert_recovered(pipeline)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("before", [new_file, new_rows])
@pytest.mark.slow
def test_job_that_somebody_cancelled(pipeline: Pipeline, before: Callable[[Pipeline], None]):
    """Prevents: a job that somebody cancelled on the server passes for done, or blocks for ever."""
    before(pipeline)
    with pipeline.sandbox.held_jobs():
        assert killed_before(pipeline, "look")
        (left,) = pipeline.journal.intents()
        with session(pipeline.sandbox) as site:
            site.tsc.jobs.cancel(left.job_id)
    report = pipeline.run()
    assert report.plan is not None
    assert "new content" in report.plan.reason
    assert_recovered(pipeline)


def test_failed_job_is_told_with_its_notes(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a failed job looks like a success, or says nothing of why."""
    pipeline = new_pipeline()
    rival = new_pipeline(pipeline.name, key="rival")
    held = pipeline.sandbox.control.add(HoldJobs())
    assert killed_before(pipeline, "job")  # a create that is on its way

    def release() -> None:
        pipeline.sandbox.control.clear(held.number)

    with pytest.raises(RefreshError) as caught:
        rival.run(around={"around_server": lambda server: At(server, "publish", release)})
    for part in (f'Publishing "{rival.name}"', "failed", "already exists", "what it held before"):
        assert part in str(caught.value)
    assert [each.outcome for each in rival.journal.intents()] == [Outcome.FAILED]
    pipeline.run()
    assert_recovered(pipeline)
