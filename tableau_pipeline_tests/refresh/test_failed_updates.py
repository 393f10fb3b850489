from collections.abc import Callable

import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.refresh.plan import Publish, Update
from tableau_pipeline.sandbox.control.faults import Drop, FailJob
from tableau_pipeline_tests.publishing.conftest import armed
from tableau_pipeline_tests.refresh.crashes import killed_after
from tableau_pipeline_tests.refresh.models import flights
from tableau_pipeline_tests.refresh.pipeline import Pipeline
from tableau_pipeline_tests.refresh.server_jobs import hours_later, jobs
from tableau_pipeline_tests.refresh.test_crash import changed_rows, settled

DATA = "sites/*/datasources/*/data"


@pytest.mark.parametrize("calls", [2, 3, 30])
def test_failed_update_is_followed_by_the_whole_file(
    new_pipeline: Callable[..., Pipeline], calls: int
):
    """Prevents: an update that the server cannot carry out is tried again and again."""
    pipeline = new_pipeline()
    changed_rows(pipeline)
    with armed(pipeline.sandbox, FailJob(notes="Out of memory.")):
        if calls == 30:
            with pytest.raises(RefreshError, match=r"failed\. Out of memory\.") as caught:
                pipeline.run()
            told = "Its actions were: 1. delete Extract.Extract; 2. insert Extract.Extract. "
            assert told in str(caught.value)
        else:
            assert killed_after(pipeline, calls)
            pipeline.decide()  # which is not to have an effect
            hours_later(pipeline)
    report = pipeline.run()
    assert report.plan == Publish(
        PublishMode.REPLACE, "in full: the last update failed on the server (Out of memory.)"
    )
    settled(pipeline)
    pipeline.model("flights", flights(10))
    assert isinstance(pipeline.run().plan, Update)


def test_lost_answer(pipeline: Pipeline):
    """Prevents: an update whose answer got lost is forgotten, or carried out twice."""
    changed_rows(pipeline)
    for when in ("before", "after"):
        with (
            armed(pipeline.sandbox, Drop(method="PATCH", path=DATA, when=when)),
            pytest.raises(RefreshError, match="broke off"),
        ):
            pipeline.run()
        hours_later(pipeline)
        pipeline.model("flights", flights(10))
    pipeline.run()
    settled(pipeline)
    assert len(jobs(pipeline)) == 2
