from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from tableau_pipeline.components.automation import refresh_schedules
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.components.support.declarations import declared

ORDERS, CUSTOMERS = dg.AssetKey("orders"), dg.AssetKey(["crm", "customers"])
BOTH = {dg.AssetKey("shop_orders"), dg.AssetKey("shop_orders_extract")}


class Location:
    """A location with one data source, and a clock for its automation."""

    def __init__(
        self, after: str, *, orders: dg.PartitionsDefinition | None = None, checked: bool = False
    ) -> None:
        datasource = declared(trigger={"after": after})

        @dg.asset_check(asset=ORDERS, blocking=True)
        def sound() -> dg.AssetCheckResult: ...

        self.definitions = dg.Definitions(
            assets=[
                refresh_assets(datasource, datasource.trigger),
                dg.AssetSpec(ORDERS, partitions_def=orders),
                dg.AssetSpec(CUSTOMERS),
            ],
            asset_checks=[sound] if checked else [],
            resources=resources_from_env(),
            executor=dg.in_process_executor,
        )
        self.instance = dg.DagsterInstance.ephemeral()
        self._cursor: dg.AssetDaemonCursor | None = None
        self._now = datetime(2026, 1, 1, 10, 1, tzinfo=UTC)
        self.tick()

    def materialize(self, *models: dg.AssetKey) -> None:
        for model in models:
            self.instance.report_runless_asset_event(dg.AssetMaterialization(model))

    def check_orders(self, *, passed: bool) -> None:
        self.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(asset_key=ORDERS, check_name="sound", passed=passed)
        )

    def tick(self, *, minutes: int = 1) -> set[dg.AssetKey]:
        """The assets that the sensor requests."""
        self._now += timedelta(minutes=minutes)
        result = dg.evaluate_automation_conditions(
            self.definitions, self.instance, cursor=self._cursor, evaluation_time=self._now
        )
        self._cursor = result.cursor
        return {key for key in BOTH if result.get_num_requested(key)}

    def start(self) -> dg.DagsterRun:
        """A refresh that is under way, planned as by the launcher."""
        return self.instance.create_run_for_job(
            self.definitions.resolve_implicit_global_asset_job_def(),
            asset_selection=frozenset(BOTH),
            status=dg.DagsterRunStatus.STARTED,
        )

    def refresh(self) -> bool:
        """Run the step; without snapshots it fails."""
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.instance, raise_on_error=False, asset_selection=list(BOTH)
        ).success


def test_any_new_model_starts_a_refresh():
    """Prevents: a dimension that changed, and a data source that does not."""
    location = Location("any")
    location.materialize(CUSTOMERS)
    assert location.tick() == BOTH
    assert location.tick() == set()


def test_all_new_models_start_one_refresh():
    """Prevents: a refresh for each model of a nightly load, or one before the last is there."""
    location = Location("all")
    location.materialize(ORDERS)
    assert location.tick() == set()
    location.materialize(ORDERS)
    assert location.tick() == set()
    location.materialize(CUSTOMERS)
    assert location.tick() == BOTH
    assert location.tick() == set()


@pytest.mark.parametrize("after", ["any", "all"])
def test_models_new_at_once_start_one_refresh(after: str):
    """Prevents: as many refreshes as models."""
    location = Location(after)
    location.materialize(ORDERS, CUSTOMERS)
    assert location.tick() == BOTH
    assert location.tick() == set()


def test_after_all_starts_over_with_each_refresh():
    """Prevents: a model counted as new although the last refresh had it."""
    location = Location("all")
    location.materialize(ORDERS, CUSTOMERS)
    assert location.tick() == BOTH
    location.materialize(ORDERS)
    assert location.tick() == set()
    location.materialize(CUSTOMERS)
    assert location.tick() == BOTH


def test_a_model_new_just_after_a_request_is_not_forgotten():
    """Prevents: rows that arrive while a refresh starts, and that it does not have, staying out."""
    location = Location("any")
    location.materialize(ORDERS)
    assert location.tick() == BOTH
    location.materialize(CUSTOMERS)
    assert location.tick() == BOTH
    assert location.tick() == set()


@pytest.mark.parametrize("after", ["any", "all"])
def test_failed_refresh_is_tried_again(after: str):
    """Prevents: one failed night after which nothing is refreshed until a model is new."""
    location = Location(after)
    assert not location.refresh()
    assert location.tick() == set()
    assert location.tick(minutes=30) == BOTH
    assert location.tick() == set()
    assert location.tick(minutes=30) == BOTH


@pytest.mark.parametrize("after", ["any", "all"])
def test_blocking_checks_are_respected(after: str):
    """Prevents: rows in Tableau that a check of their model has not seen, or has refused."""
    location = Location(after, checked=True)
    location.materialize(ORDERS, CUSTOMERS)
    assert location.tick() == set()
    location.check_orders(passed=False)
    assert location.tick() == set()
    location.check_orders(passed=True)
    assert location.tick() == BOTH
    assert location.tick() == set()


def test_a_missing_partition_is_no_blocker():
    """Prevents: a day that never came, and a data source that stands still from then on."""
    days = dg.DailyPartitionsDefinition("2025-12-20", timezone="UTC")
    location = Location("any", orders=days)
    location.instance.report_runless_asset_event(
        dg.AssetMaterialization(ORDERS, partition="2025-12-31")
    )
    assert location.tick() == BOTH
    assert location.tick() == set()


@pytest.mark.parametrize("after", ["any", "all"])
def test_at_most_one_refresh_in_flight(after: str):
    """Prevents: a queue of refreshes of one data source, each behind the next model."""
    location = Location(after)
    run = location.start()
    location.materialize(ORDERS, CUSTOMERS)
    assert location.tick() == set()
    location.instance.report_run_canceled(run)
    assert location.tick() == BOTH


def test_one_schedule_for_each_cron_and_zone():
    """Prevents: a job for each of hundreds of data sources, which Dagster resolves one by one."""
    paris = {"cron": "0 6 * * *", "timezone": "Europe/Paris"}
    schedules = refresh_schedules(
        [
            declared(key="a", trigger=paris),
            declared(key="b", trigger=paris),
            declared(key="c", trigger={"cron": "0 6 * * *"}),
            declared(key="d", trigger={"after": "any"}),
            declared(key="e"),
        ]
    )
    assert [(each.cron_schedule, each.execution_timezone) for each in schedules] == [
        ("0 6 * * *", "Europe/Paris"),
        ("0 6 * * *", "UTC"),
    ]
    assert {each.default_status for each in schedules} == {dg.DefaultScheduleStatus.STOPPED}


def test_a_schedule_refreshes_its_datasources_alone():
    """Prevents: a tick that runs models, or data sources due at another time."""
    paris, utc = (
        declared(key="a", trigger={"cron": "0 6 * * *", "timezone": "Europe/Paris"}),
        declared(key="b", trigger={"cron": "30 7 * * 1-5"}),
    )
    schedules = refresh_schedules([paris, utc])
    definitions = dg.Definitions(
        assets=[refresh_assets(each, each.trigger) for each in (paris, utc)],
        schedules=schedules,
        resources=resources_from_env(),
    )
    due = schedules[1].evaluate_tick(
        dg.build_schedule_context(scheduled_execution_time=datetime(2026, 1, 5, 7, 30, tzinfo=UTC))
    )
    assert len(due.run_requests or []) == 1
    job = definitions.resolve_job_def(schedules[1].job_name)
    assert job.asset_layer.executable_asset_keys == {dg.AssetKey("b"), dg.AssetKey("b_extract")}


def test_times_that_read_alike_are_two_schedules():
    """Prevents: a location that does not load because of two data sources' times."""
    datasources = [
        declared(name=name, trigger={"cron": cron})
        for name, cron in (("A", "0 6 * * 1-5"), ("B", "0 6 * * 1,5"))
    ]
    assert len({schedule.name for schedule in refresh_schedules(datasources)}) == 2
