"""What a refresh takes of a site's budgets of calls."""

import io

from tableau_pipeline.core.declaration import Reconcile
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.sandbox.http.request_log import requests_logged_to
from tableau_pipeline_tests.docs.page import page
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline

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
        looks = sum("/jobs/" in path for path in paths)
        assert len(paths) == int(fixed[what]) + looks * int(for_a_look[what]), paths
        assert sum("/vizql-data-service/" in path for path in paths) == int(queries[what])
        kept = pipeline.journal.records()
        newest = max(each.refresh for each in kept)
        assert sum(each.refresh == newest for each in kept) == int(records[what])
