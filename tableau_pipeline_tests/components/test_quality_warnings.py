"""Data quality warnings on data sources whose rows may be old."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager

import dagster as dg
import pytest
import tableauserverclient as TSC

from tableau_pipeline.components.published_datasource import PublishedDatasource, refresh_assets
from tableau_pipeline.components.quality_warnings import warning_definitions
from tableau_pipeline.publishing import properties
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.components.support.location import MODEL, Location
from tableau_pipeline_tests.dagster_servers import until
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_sandbox.faults import Refuse

SAID = {"quality_warning": True, "freshness": {"within": "24h"}}


@contextmanager
def watching(
    location: Location, *keys: str
) -> Generator[tuple[TableauSite, Callable[..., bool | None]]]:
    """Watch data sources; the block gets a session and a function `tick`.

    `tick` evaluates the sensor as the daemon does, and runs the job that the sensor requests.
    """
    declared = [location.declaration(key, SAID) for key in keys]
    watched = [each for each in declared if isinstance(each, PublishedDatasource)]
    resources = dg.Definitions(resources=location.resources())
    made = dg.Definitions.merge(warning_definitions(watched), resources)
    sensor = made.resolve_sensor_def("quality_warnings")
    job = made.resolve_job_def("quality_warnings")
    cursor = None

    def tick(meanwhile: Callable[[], object] = lambda: None) -> bool | None:
        """Return whether the job succeeded, or None if the sensor requested no job.

        `tick` calls `meanwhile` between the request and the job.
        """
        nonlocal cursor
        with dg.build_sensor_context(location.instance, cursor=cursor) as context:
            result = sensor.evaluate_tick(context)
        cursor = result.cursor
        if not result.run_requests:
            return None
        meanwhile()
        config = result.run_requests[0].run_config
        # Name a data source that is no longer declared, as an outdated sensor may do.
        config["ops"]["set_quality_warnings"]["config"]["texts"]["removed"] = ""
        done = job.execute_in_process(config, location.instance, raise_on_error=False)
        return done.success

    with session(location.sandbox) as site:
        yield site, tick


def on_server(location: Location, site: TableauSite, key: str) -> list[str]:
    found = properties.quality_warnings(site, str(location.checkpoint(key).luid))
    return [text.partition(" (tableau-pipeline:")[0] for _, text in found]


@pytest.mark.slow
def test_warnings_while_rows_may_be_old(location: Location):
    """Prevents: analysts trust old rows, see a warning for ever, or lose other users' warnings."""
    location.publish("old", declared=SAID)
    with watching(location, "old") as (site, tick):
        # The first tick requests the job, because the server may have an earlier warning.
        assert (tick(), tick()) == (True, None)
        item = site.tsc.datasources.get_by_id(str(location.checkpoint("old").luid))
        site.tsc.datasources.add_dqw(item, TSC.DQWItem("SENSITIVE_DATA", "Salaries"))
        when = r" They were last refreshed at .* UTC\."
        refused = rf"The last refresh was refused or has failed: .* out of date\.{when}"
        late = rf"These data are late: the rows may be out of date\.{when}"
        models = rf'Older than .*: the published version of the model "{MODEL}" is of .* UTC\.'

        def check_warning(expected: str | None) -> None:
            assert (tick(), tick()) == (True, None)
            others, *ours = on_server(location, site, "old")
            assert (others, len(ours)) == ("Salaries", 1 if expected else 0)
            assert not expected or re.fullmatch(expected, *ours)

        location.model(flights(0))
        assert not location.refresh("old", declared=SAID).success
        check_warning(refused)
        location.model(flights(9))
        assert location.refresh("old", declared=SAID).success
        check_warning(None)
        location.grow_old("old")
        check_warning(late)
        location.grow_old_model(days=2)
        assert location.refresh("old", declared=SAID).success
        check_warning(models)
        location.model(flights(8))
        assert location.refresh("old", declared=SAID).success
        check_warning(None)


@pytest.mark.slow
def test_a_refresh_that_begins_before_the_job(location: Location):
    """Prevents: a refusal leads to no warning because a refresh began before the job."""
    location.publish("removed")
    location.publish("old", declared=SAID)
    with watching(location, "old") as (site, tick):
        tick()
        location.model(flights(0))
        assert not location.refresh("old", declared=SAID).success
        made = dg.Definitions(
            [refresh_assets(location.declaration("old"), None)],
            resources=location.resources(),
        )
        assert tick(
            lambda: location.instance.create_run_for_job(
                made.resolve_implicit_global_asset_job_def(),
                status=dg.DagsterRunStatus.STARTED,
                asset_selection=frozenset(map(dg.AssetKey, ("old", "old_extract"))),
            )
        )
        assert on_server(location, site, "old")


@pytest.mark.slow
def test_sites_without_such_warnings(location: Location, capfd: pytest.CaptureFixture[str]):
    """Prevents: on a site without data quality warnings, the job fails again and again."""
    location.publish("alone", declared=SAID)
    location.grow_old("alone")
    with watching(location, "alone") as (_, tick), location.sandbox.quirks(data_management=False):
        assert (tick(), tick()) == (True, None)
    text = "quality_warning of alone has no effect"
    # Another process of Dagster passes on the output of a step, so the text may come later.
    until(lambda: text in capfd.readouterr().err, seconds=30, what="no log of the warning")


@pytest.mark.slow
def test_one_that_cannot_be_warned_of(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a deleted data source or an outage stops all other warnings."""
    location.model()
    for key in ("gone", "stale"):
        assert location.refresh(key, declared=SAID).success
        location.grow_old(key)
    with watching(location, "gone", "stale") as (site, tick):
        site.delete(str(location.checkpoint("gone").luid))
        with location.sandbox.armed(
            Refuse(path="sites/*/dataQualityWarnings/datasource/*", status=500, times=None)
        ):
            assert (tick(), tick()) == (False, None)
        monkeypatch.setattr("tableau_pipeline.components.quality_warnings._RETRY_SECONDS", -1)
        assert (tick(), tick()) == (True, None)
        assert on_server(location, site, "stale")
