"""What a refresh takes of a site's budgets of calls."""

import logging
from collections.abc import Callable

import pytest

from tableau_pipeline.core.declaration import Diff, Reconcile
from tableau_pipeline_tests.docs.page import page
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

DECISIONS = {
    "nothing changed": "no change",
    "update": "update",
    "publish": "publish (replace)",
}


@pytest.fixture
def paths(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The paths of the requests so far, each only once."""
    log = "tableau_sandbox.requests"
    caplog.set_level(logging.INFO, log)

    def new() -> list[str]:
        found = [str(each.args[1]) for each in caplog.records if each.name == log and each.args]  # ty: ignore
        caplog.clear()
        return found

    return new


def test_requests_are_those_of_the_page(pipeline: Pipeline, paths: Callable[[], list[str]]):
    """Prevents: a refresh that takes more of the site's budgets than somebody has planned with."""
    rows = page("explanation/scale.md").sections["Data sources"].rows()
    fixed, queries, for_a_look, records = (row for row in rows if "update" in row)
    pipeline.policy(Diff(("flight_id",)))
    pipeline.declare(reconcile=Reconcile())
    pipeline.run()
    for number, (what, decision) in enumerate(DECISIONS.items()):
        pipeline.model("flights", flights(8 + number))
        paths()
        report = pipeline.run(full=what == "publish")
        asked = paths()
        assert report.plan
        assert report.plan.decision == decision
        at_job = [number for number, path in enumerate(asked) if "/jobs/" in path]
        # A look is at the job, or in turn at the data source while the job waits in the queue.
        looks = at_job[-1] - at_job[0] + 1 if at_job else 0
        assert len(asked) == int(fixed[what]) + looks * int(for_a_look[what]), asked
        assert sum("/vizql-data-service/" in path for path in asked) == int(queries[what])
        kept = pipeline.journal.records()
        newest = max(each.refresh for each in kept)
        assert sum(each.refresh == newest for each in kept) == int(records[what])
