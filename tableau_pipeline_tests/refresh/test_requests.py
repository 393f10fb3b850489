"""What a refresh takes of a site's budgets of calls."""

import io
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.refresh.plan.decide import Options
from tableau_pipeline_tests.docs.page import page
from tableau_pipeline_tests.refresh.recover.test_crash import changed_rows
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline
from tableau_sandbox.http.request_log import requests_logged_to

DECISIONS = {
    "nothing changed": "no change",
    "update": "update",
    "publish": "publish (replace)",
}


def test_requests_are_those_of_the_page(pipeline: Pipeline):
    """Prevents: a refresh that takes more of the site's budgets than somebody has planned with."""
    rows = page("explanation/scale.md").sections["Data sources"].rows()
    fixed, queries, for_a_look, records = (row for row in rows if "update" in row)
    pipeline.policy(Diff(("flight_id",)))
    pipeline.declare(reconcile=Reconcile())
    pipeline.run()
    for number, (what, decision) in enumerate(DECISIONS.items()):
        pipeline.model("flights", flights(8 + number))
        log = io.StringIO()
        with requests_logged_to(log):
            report = pipeline.run(full=what == "publish")
        assert report.plan
        assert report.plan.decision == decision
        paths = [line.split()[2] for line in log.getvalue().splitlines()]
        at_job = [number for number, path in enumerate(paths) if "/jobs/" in path]
        # A look is at the job, or in turn at the data source while the job waits in the queue.
        looks = at_job[-1] - at_job[0] + 1 if at_job else 0
        assert len(paths) == int(fixed[what]) + looks * int(for_a_look[what]), paths
        assert sum("/vizql-data-service/" in path for path in paths) == int(queries[what])
        kept = pipeline.journal.records()
        newest = max(each.refresh for each in kept)
        assert sum(each.refresh == newest for each in kept) == int(records[what])


def test_each_look_at_a_job_is_one_request(new_pipeline: Callable[..., Pipeline]):
    """Prevents: a job that waits for hours takes several requests a look from the site's budget."""
    pipeline = new_pipeline()
    changed_rows(pipeline)
    log, slept = io.StringIO(), []
    with ExitStack() as held:
        held.enter_context(pipeline.sandbox.held_jobs())

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 8:
                held.close()
                pipeline.sandbox.wait_until_idle()

        with requests_logged_to(log):
            replace(pipeline.refresh(), sleep=sleep).run(Options())
    paths = [line.split()[2] for line in log.getvalue().splitlines()]
    at_job = [number for number, path in enumerate(paths) if "/jobs/" in path]
    looks = paths[at_job[0] : at_job[-1] + 1]
    assert len(looks) == len(slept) + 1
    assert not any("/revisions" in path for path in looks)
    assert sum("/datasources/" in path for path in looks) == 4, "the job has not begun"
