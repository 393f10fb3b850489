"""Updates that fail on the server, and answers that are lost on the way."""

from collections.abc import Callable
from typing import Literal

import pytest

from tableau_pipeline.core.checkpoint import Outcome, PublishMode
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.refresh.plan import Publish, Update
from tableau_pipeline_tests.refresh.recover.test_crash import (
    assert_recovered,
    changed_rows,
    first,
    new_file,
)
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_pipeline_tests.refresh.support.server_jobs import jobs
from tableau_sandbox.faults import Drop, FailJob

DATA = "sites/*/datasources/*/data"
PUBLISH = "sites/*/datasources"

When = Literal["before", "after"]


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
        PublishMode.REPLACE, "in full: the last update failed on the server (Out of memory.)"
    )
    assert_recovered(pipeline)
    pipeline.model("flights", flights(10))
    assert isinstance(pipeline.run().plan, Update)


def test_failed_update_of_content_that_came_back(pipeline: Pipeline):
    """Prevents: a failure is forgotten with the rows that it was about."""
    changed_rows(pipeline)
    with pipeline.sandbox.armed(FailJob(notes="Out of memory.")), pytest.raises(RefreshError):
        pipeline.run()
    pipeline.model("flights", flights())
    assert isinstance(pipeline.run().plan, Publish)
    assert_recovered(pipeline)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("when", ["before", "after"])
def test_answer_to_an_update_is_lost(pipeline: Pipeline, when: When):
    """Prevents: a hiccup of the network costs a whole file, or updates twice."""
    changed_rows(pipeline)
    with pipeline.sandbox.armed(Drop(method="PATCH", path=DATA, when=when)):
        assert isinstance(pipeline.run().plan, Update)
    assert [job.kind for job in jobs(pipeline)] == ["update", "publish"]
    assert_recovered(pipeline)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("answer", ["empty-job", "conflict"])
@pytest.mark.slow
def test_server_keeps_the_job_to_itself(new_pipeline: Callable[..., Pipeline], answer: str):
    """Prevents: an update whose job nobody knows passes for done, or is sent again beside it."""
    pipeline = new_pipeline(on={"repeated_request": answer})
    changed_rows(pipeline)
    lost = Drop(method="PATCH", path=DATA, when="after")
    with (
        pipeline.sandbox.armed(lost),
        pytest.raises(RefreshError, match="does not name the job"),
    ):
        pipeline.run()
    assert isinstance(pipeline.run().plan, Publish)
    assert pipeline.journal.sendings()[1].outcome is Outcome.LOST
    assert_recovered(pipeline)


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("before", [first, changed_rows, new_file])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.slow
def test_all_answers_are_lost(pipeline: Pipeline, before: Callable[[Pipeline], None], when: When):
    """Prevents: what the server may have received is forgotten, or carried out twice."""
    before(pipeline)
    method, path = ("PATCH", DATA) if before is changed_rows else ("POST", PUBLISH)
    began = len(jobs(pipeline))
    lost = Drop(method=method, path=path, when=when, times=None)
    with (
        pipeline.sandbox.armed(lost) as fault,
        pytest.raises(RefreshError, match="broke off"),
    ):
        pipeline.run()
    if before is not changed_rows:
        assert fault.fired == 1, "a publish is never sent twice"
    (left,) = pipeline.journal.intents()
    assert (left.outcome, left.job_id) == (None, None)
    pipeline.model("flights", flights(10))
    report = pipeline.run()
    assert isinstance(report.plan, Publish)
    assert len(jobs(pipeline)) == began + 1 + (when == "after")
    assert_recovered(pipeline)
