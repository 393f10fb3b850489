"""What others do on the server while a killed refresh leaves open what became of its update."""

from collections.abc import Callable

import pytest

from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.refresh.plan import NoChange
from tableau_pipeline_tests.refresh.recover.test_crash import changed_rows, new_file
from tableau_pipeline_tests.refresh.support import other_users
from tableau_pipeline_tests.refresh.support.crashes import killed_before
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.other_users import ADMIN
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline


@pytest.mark.few_variants(2)
@pytest.mark.parametrize("before", [changed_rows, new_file])
@pytest.mark.parametrize("step", ["upload", "send", "job", "look", "outcome", "closing"])
@pytest.mark.slow
def test_overwritten_by_hand_after_a_crash(
    pipeline: Pipeline, before: Callable[[Pipeline], None], step: str
):
    """Prevents: rows of somebody else pass for ours, because an update of ours is open."""
    before(pipeline)
    if step == "send":
        step = "publish" if before is new_file else "update"
    assert killed_before(pipeline, step)
    pipeline.sandbox.wait_until_idle()
    other_users.publishes(pipeline, flights(3), user=ADMIN)
    pipeline.run()
    assert pipeline.wrong() == []
    assert isinstance(pipeline.run().plan, NoChange)


def test_touched_but_equal_after_a_crash(pipeline: Pipeline):
    """Prevents: a description that somebody changed costs a whole file."""
    changed_rows(pipeline)
    pipeline.declare(reconcile=Reconcile())
    assert killed_before(pipeline, "outcome")
    pipeline.sandbox.wait_until_idle()
    other_users.describes(pipeline)
    report = pipeline.run()
    assert isinstance(report.plan, NoChange)
    assert "still holds what the last refresh left" in report.warnings[0]
    assert pipeline.run().warnings == ()
