"""Warnings at data sources whose refresh did not come."""

import dagster as dg

from tableau_pipeline.components.overdue import overdue_definitions
from tableau_pipeline.components.published_datasource import PublishedDatasource
from tableau_pipeline.publishing import about
from tableau_pipeline_tests.components.support.location import Location
from tableau_pipeline_tests.refresh.support.pipeline import session

SAID = {"quality_warning": True, "freshness": {"within": "24h"}}


def test_a_refresh_that_nobody_starts(location: Location):
    """Prevents: analysts trust rows that are days old, since no run was there to warn them."""
    location.model()
    assert location.refresh("overdue", declared=SAID).success
    datasource = location.declaration("overdue", SAID)
    assert isinstance(datasource, PublishedDatasource)
    resources = dg.Definitions(resources=location.resources())
    made = dg.Definitions.merge(overdue_definitions([datasource]), resources)
    sensor = made.resolve_sensor_def("quality_warnings")
    job = made.resolve_job_def("quality_warnings")
    requests: list[int] = []
    cursor: str | None = None
    with session(location.sandbox) as site:
        luid = str(location.checkpoint("overdue").luid)

        def tick() -> list[str]:
            nonlocal cursor
            with dg.build_sensor_context(location.instance, cursor=cursor) as context:
                result = sensor.evaluate_tick(context)
            cursor = result.cursor
            requests.append(len(result.run_requests or ()))
            if requests[-1]:
                assert job.execute_in_process(instance=location.instance).success
            return [text for _, text in about.quality_warnings(site, luid)]

        assert tick() == []
        last = location.instance.get_latest_materialization_event(dg.AssetKey("overdue"))
        assert last
        location.instance.store_event(last._replace(timestamp=last.timestamp - 2 * 86_400))
        for _ in range(2):
            (text,) = tick()
            assert text.startswith("These data are late: the rows may be out of date.")
        assert requests == [0, 1, 0]
        assert location.refresh("overdue", declared=SAID).success
        assert tick() == []
