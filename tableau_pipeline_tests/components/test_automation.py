"""Triggers: the refreshes that sensors and schedules request, and a backfill by the daemon."""

import os
import shutil
from collections.abc import Generator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    ScheduleInstigatorData,
)

from tableau_pipeline.components import FileDrop, PublishedDatasource
from tableau_pipeline.components.automation import refresh_schedules
from tableau_pipeline.components.dbt import DbtTrigger, dbt_sensors
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.components.conftest import NewInstance
from tableau_pipeline_tests.components.support.projects import Project, declared
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.dagster_servers import dg_dev
from tableau_sandbox.testing import Sandbox

ORDERS, CUSTOMERS = dg.AssetKey("orders"), dg.AssetKey(["crm", "customers"])
BOTH = {dg.AssetKey("shop_orders"), dg.AssetKey("shop_orders_extract")}


class Location:
    """A location with one data source, and a clock for its automation."""

    def __init__(
        self,
        after: str,
        *,
        orders: dg.PartitionsDefinition | None = None,
        checked: bool = False,
        **trigger: str,
    ) -> None:
        datasource = declared(trigger={"after": after, **trigger})

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
        """Advance the clock; return the assets that the sensor requests."""
        self._now += timedelta(minutes=minutes)
        result = dg.evaluate_automation_conditions(
            self.definitions, self.instance, cursor=self._cursor, evaluation_time=self._now
        )
        self._cursor = result.cursor
        return {key for key in BOTH if result.get_num_requested(key)}

    def start(self) -> dg.DagsterRun:
        """Record a running refresh, as the launcher creates it."""
        return self.instance.create_run_for_job(
            self.definitions.resolve_implicit_global_asset_job_def(),
            asset_selection=frozenset(BOTH),
            status=dg.DagsterRunStatus.STARTED,
        )

    def refresh(self) -> bool:
        """Run the refresh step without any snapshot, and return whether it succeeded."""
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.instance, raise_on_error=False, asset_selection=list(BOTH)
        ).success


# For each tick of the sensor: the first letters of the new models, and "!" if the tick requests a
# refresh.
STORIES = {
    "a dimension changes, and its data source does not": ("any", "C! -"),
    "a refresh for each model of a nightly load, or before the last": ("all", "O O C! -"),
    "any: as many refreshes as models that are new at once": ("any", "OC! -"),
    "all: as many refreshes as models that are new at once": ("all", "OC! -"),
    "a model counts as new although the last refresh had it": ("all", "OC! O C!"),
    "rows that arrive while a refresh starts stay out": ("any", "O! C! -"),
}


@pytest.mark.parametrize(("after", "looks"), STORIES.values(), ids=STORIES)
def test_new_models(after: str, looks: str):
    """Prevents: the sensor fails in the way that the ID of the case describes."""
    location, models = Location(after), {"O": ORDERS, "C": CUSTOMERS}
    for look in looks.split():
        location.materialize(*(models[letter] for letter in look if letter in models))
        assert location.tick() == (BOTH if look.endswith("!") else set()), look


def test_at_most_one_refresh_in_a_quarter():
    """Prevents: a trigger with `every: 15m` refreshes too often, or forgets a new model."""
    location = Location("any", every="15m")
    location.materialize(ORDERS)
    assert location.tick(minutes=5) == set()
    location.materialize(CUSTOMERS)
    assert location.tick(minutes=9) == BOTH, "it is 10:16"
    location.materialize(ORDERS)
    assert location.tick() == set()
    run = location.start()
    assert location.tick(minutes=14) == set(), "a refresh runs"
    location.instance.report_run_canceled(run)
    assert location.tick() == BOTH
    assert location.tick(minutes=60) == set(), "nothing is new"
    location.materialize(CUSTOMERS)
    assert location.tick() == BOTH


@pytest.mark.parametrize("after", ["any", "all"])
def test_failed_refresh_is_tried_again(after: str):
    """Prevents: a trigger repeats a failed refresh only after a model is new."""
    location = Location(after)
    assert not location.refresh()
    assert location.tick() == set()
    assert location.tick(minutes=30) == BOTH
    assert location.tick() == set()
    assert location.tick(minutes=30) == BOTH


@pytest.mark.parametrize("after", ["any", "all"])
def test_blocking_checks_are_respected(after: str):
    """Prevents: a refresh publishes rows whose blocking check failed or has not run."""
    location = Location(after, checked=True)
    location.materialize(ORDERS, CUSTOMERS)
    assert location.tick() == set()
    location.check_orders(passed=False)
    assert location.tick() == set()
    location.check_orders(passed=True)
    assert location.tick() == BOTH
    assert location.tick() == set()


def test_a_missing_partition_does_not_block():
    """Prevents: a partition that was never materialized blocks all later partitions."""
    days = dg.DailyPartitionsDefinition("2025-12-20", timezone="UTC")
    location = Location("any", orders=days)
    location.instance.report_runless_asset_event(
        dg.AssetMaterialization(ORDERS, partition="2025-12-31")
    )
    assert location.tick() == BOTH
    assert location.tick() == set()


@pytest.mark.parametrize("after", ["any", "all"])
def test_at_most_one_refresh_in_flight(after: str):
    """Prevents: each new model queues one more refresh while a refresh runs."""
    location = Location(after)
    run = location.start()
    location.materialize(ORDERS, CUSTOMERS)
    assert location.tick() == set()
    location.instance.report_run_canceled(run)
    assert location.tick() == BOTH


class Timed:
    """A location with the models ORDERS and CUSTOMERS, and schedules for its data sources."""

    def __init__(
        self,
        instance: dg.DagsterInstance,
        *datasources: PublishedDatasource,
        orders: dg.PartitionsDefinition | None = None,
    ) -> None:
        @dg.asset(key=ORDERS, partitions_def=orders)
        def orders_model() -> None: ...

        @dg.asset(key=CUSTOMERS, deps=["crm_dump"])
        def customers_model() -> None: ...

        self.schedules = {each.name: each for each in refresh_schedules(datasources)}
        self.definitions = dg.Definitions(
            assets=[
                *(refresh_assets(each, each.trigger) for each in datasources),
                orders_model,
                customers_model,
            ],
            schedules=list(self.schedules.values()),
            resources=resources_from_env(),
        )
        self.instance = instance

    def switch(self, name: str, status: InstigatorStatus) -> None:
        """Turn a schedule on or off, as the switch in the web UI does."""
        place = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("shop"), "__repository__")
        origin = place.get_instigator_origin(name)
        state = InstigatorState(
            origin, InstigatorType.SCHEDULE, status, ScheduleInstigatorData("0 6 * * *")
        )
        self.instance.add_instigator_state(state)

    def tick(self, name: str) -> set[str]:
        """The assets that a tick of the schedule requests; empty if the tick skips."""
        context = dg.build_schedule_context(
            self.instance,
            scheduled_execution_time=datetime(2026, 1, 5, 6, tzinfo=UTC),
            repository_def=self.definitions.get_repository_def(),
        )
        requests = self.schedules[name].evaluate_tick(context).run_requests or []
        keys = [key for each in requests for key in each.asset_selection or ()]
        assert len(requests) <= 1
        return {key.to_user_string() for key in keys}


@pytest.fixture
def instance(new_instance: NewInstance) -> Generator[dg.DagsterInstance]:
    with new_instance() as made:
        yield made


SIX = {"cron": "0 6 * * *", "timezone": "Europe/Paris"}
MODELS_FIRST = {**SIX, "upstream": True}


def test_a_schedule_refreshes_its_datasource_alone(instance: dg.DagsterInstance):
    """Prevents: a schedule also runs models or other data sources, or adds a job of its own."""
    timed = Timed(
        instance,
        declared(key="a", trigger=SIX),
        declared(key="eu/b", trigger={"cron": "0 6 * * *"}),
        declared(key="c", trigger={"after": "any"}),
    )
    found = {
        name: (each.cron_schedule, each.execution_timezone, each.job_name)
        for name, each in timed.schedules.items()
    }
    assert found == {
        "refresh_a": ("0 6 * * *", "Europe/Paris", "tableau_at_fixed_times"),
        "refresh_eu__b": ("0 6 * * *", "UTC", "tableau_at_fixed_times"),
    }
    assert timed.tick("refresh_a") == {"a", "a_extract"}
    assert timed.tick("refresh_eu__b") == {"eu/b", "eu/b_extract"}


def test_a_schedule_runs_the_models_first(instance: dg.DagsterInstance):
    """Prevents: a schedule publishes yesterday's rows because it has not run the models."""
    timed = Timed(instance, declared(key="a", trigger=MODELS_FIRST))
    assert timed.tick("refresh_a") == {"a", "a_extract", "orders", "crm/customers"}


def test_shared_models_run_once(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a shared model runs once per data source, or a data source is never refreshed."""
    datasources = [declared(key=key, trigger=MODELS_FIRST) for key in "abc"]
    timed = Timed(instance, *datasources, declared(key="d", trigger=SIX))
    for key in "bc":
        timed.switch(f"refresh_{key}", InstigatorStatus.RUNNING)
    assert timed.tick("refresh_b") >= {"b", "c", "orders"}
    assert not timed.tick("refresh_b") & {"a", "d"}
    assert timed.tick("refresh_c") == set()
    monkeypatch.setenv("PIPELINE_TRIGGERS", "on")
    timed = Timed(instance, *datasources, declared(key="d", trigger=SIX))
    assert timed.tick("refresh_a") >= {"a", "b", "c", "orders"}
    assert timed.tick("refresh_b") == set()


def test_models_that_no_schedule_can_run_are_refused(instance: dg.DagsterInstance):
    """Prevents: a location loads with models that no schedule can run, and fails at the tick."""
    days = dg.DailyPartitionsDefinition("2025-12-20", timezone="UTC")
    related = [{"from": "orders", "to": "stock", "on": {"id": "id"}}]
    both = {"tables": {"orders": {}, "stock": {}}, "relationships": related}
    timed = Timed(instance, declared(key="a", trigger=MODELS_FIRST, **both), orders=days)
    with pytest.raises(dg.DagsterInvalidDefinitionError) as refused:
        dg.Definitions.validate_loadable(timed.definitions)
    message = str(refused.value.__cause__)
    assert message.startswith('"Shop Orders" cannot run its models first: no asset of this code ')
    assert 'makes the model "stock"; "orders" is partitioned' in message


@pytest.mark.parametrize(
    ("value", "status"), [(None, "STOPPED"), ("", "STOPPED"), ("off", "STOPPED"), ("on", "RUNNING")]
)
def test_one_variable_for_every_trigger(
    monkeypatch: pytest.MonkeyPatch, value: str | None, status: str
):
    """Prevents: a kind of trigger runs on laptops, or needs a click in production."""
    if value is not None:
        monkeypatch.setenv("PIPELINE_TRIGGERS", value)
    context = dg.ComponentTree.for_test().load_context
    file_drop = FileDrop.from_attributes_dict(attributes={"folder": "/srv"})
    found = [
        *refresh_schedules([declared(trigger={"cron": "0 6 * * *"})]),
        *dbt_sensors({"sales": DbtTrigger("target/run_results.json")}),
        *(file_drop.build_defs(context).sensors or ()),
    ]
    assert [each.default_status.name for each in found] == [status] * 3


DAYS = [str(date(2026, 1, 1) + timedelta(days=number)) for number in range(90)]


DAILY = """import dagster as dg

from tableau_pipeline.resources import SparkResource


@dg.asset(
    partitions_def=dg.DailyPartitionsDefinition("2026-01-01", timezone="UTC"),
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={"partition_expr": "day"},
    io_manager_key="snapshots",
)
def orders(context: dg.AssetExecutionContext, spark: SparkResource):
    window = context.partition_time_window
    days = (window.end - window.start).days
    return spark.spark_session.sql(
        f"SELECT DATE '{window.start.date()}' + CAST(d.id AS INT) AS day, n.id AS id, "
        f"uuid() AS changed FROM RANGE({days}) d CROSS JOIN RANGE(3) n"
    )
"""
DAILY_ORDERS = """type: tableau_pipeline.components.PublishedDatasource
attributes:
  name: Daily Orders
  project: Default
  tables: {orders: {refresh: {partitions: {column: day}}}}
  trigger: {after: any}
"""


@pytest.mark.long
def test_a_backfill_from_the_web_is_one_run_and_one_refresh(
    tableau_sandbox: Sandbox, project: Project, tmp_path: Path
):
    """Prevents: a backfill makes a run or a publish per day, or a repeated day sends all days."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
    environment = {**os.environ, "DAGSTER_HOME": str(home), "PIPELINE_TRIGGERS": "on"}
    module = f"{{module_name: {project.name}.definitions, working_directory: .}}"
    (project.root / "workspace.yaml").write_text(f"load_from: [{{python_module: {module}}}]\n")
    project.add_pipeline()
    project.write("models.py", DAILY)
    project.write("shop/defs.yaml", DAILY_ORDERS)
    with dg_dev(project.root, environment, tmp_path / "dev.log") as server:
        server.backfill("orders", DAYS)
        model, _ = server.next_run("orders")
        first, assets = server.next_run("daily_orders")
        assert assets == ["daily_orders", "daily_orders_extract"]
        shipped = server.shipped("daily_orders")
        assert (shipped["decision"], shipped["dagster/row_count"]) == ("publish (create)", 90 * 3)

        server.backfill("orders", DAYS[40:41])
        again, _ = server.next_run("orders", known={model})
        second, _ = server.next_run("daily_orders", known={first})
        shipped = server.shipped("daily_orders")
        assert (shipped["decision"], shipped["rows sent"]) == ("update", 3)
        # The sensor has ticked several times, and has requested no further run.
        assert server.runs_of("orders").keys() == {model, again}
        assert server.runs_of("daily_orders").keys() == {first, second}
