"""Jobs that fail or take too long on the server, and answers that are lost on the way."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.refresh.plan import Publish, UpdateTables
from tableau_pipeline_tests.refresh.deliver.test_claims import At
from tableau_pipeline_tests.refresh.recover.test_recovery import (
    assert_recovered,
    changed_rows,
    first,
    new_file,
)
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import TIMEOUTS, Pipeline
from tableau_pipeline_tests.refresh.support.proxies import Proxy
from tableau_sandbox.faults import FailJob, HoldJobs

IMPATIENT = replace(TIMEOUTS, queue=0.2)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("killed", [False, True])
def test_failed_update_is_followed_by_the_whole_file(pipeline: Pipeline, *, killed: bool):
    """Prevents: an update that the server cannot carry out is tried again and again."""
    changed_rows(pipeline)
    with pipeline.sandbox.armed(FailJob(notes="Out of memory.")):
        if killed:
            assert killed_before(pipeline, "look")
            pipeline.sandbox.wait_until_idle()
        else:
            with pytest.raises(RefreshError, match=r"failed\. Out of memory\.") as caught:
                pipeline.run()
            actions = "Its actions were: 1. delete Extract.Extract; 2. insert Extract.Extract. "
            assert actions in str(caught.value)
    assert "the last update failed on the server" in pipeline.decide()
    report = pipeline.run()
    assert report.plan == Publish(
        PublishMode.REPLACE, "full publish: the last update failed on the server (Out of memory.)"
    )
    assert_recovered(pipeline)
    pipeline.model("flights", flights(10))
    assert isinstance(pipeline.run().plan, UpdateTables)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("before", [new_file, first])
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


class Stubborn(Proxy):
    """A server that ends no job: it belongs to another user, or is too far on."""

    def cancel(self, job_id: str) -> bool:
        return False


@pytest.mark.slow
def test_time_out_leaves_the_intent_open(pipeline: Pipeline):
    """Prevents: a job that takes longer than we wait is taken for failed, or for done."""
    changed_rows(pipeline)
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
