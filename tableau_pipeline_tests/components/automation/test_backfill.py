"""A daily-partitioned model, from its backfill to the data source, with real Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    SparkResource,
    TableauServerResource,
)
from tableau_sandbox.testing import running_sandbox

# Dagster's own word for a parameter that it has had for years.
pytestmark = pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")

ROWS_A_DAY = 3
DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-04-01", timezone="UTC")
PUBLISHED, EXTRACT = dg.AssetKey("daily_orders"), dg.AssetKey("daily_orders_extract")
DATASOURCE: dict[str, Any] = {
    "name": "Daily Orders",
    "project": "Default",
    "tables": {"orders": {"refresh": {"partitions": {"column": "day"}}}},
    "trigger": {"after": "any"},
}


class Location:
    """A model, its data source, and what Dagster's daemon would do with them."""

    def __init__(self, root: Path, tableau: TableauServerResource) -> None:
        self.amount, self.spark_runs = 1, 0
        self.instance = dg.DagsterInstance.ephemeral()
        self._cursor: Any = None
        datasource = PublishedDatasource.from_attributes_dict(attributes=DATASOURCE)
        spark = SparkResource()
        self.definitions = dg.Definitions(
            assets=[
                self._orders(),
                refresh_assets(datasource, datasource.trigger),
            ],
            resources={
                "io_manager": (snapshots := SnapshotIOManager(root=str(root), spark=spark)),
                "snapshots": snapshots,
                "hyper": HyperResource(),
                "tableau": tableau,
            },
            executor=dg.in_process_executor,
        )
        self.requested()

    def _orders(self) -> dg.AssetsDefinition:
        @dg.asset(
            partitions_def=DAYS,
            backfill_policy=dg.BackfillPolicy.single_run(),
            metadata={"partition_expr": "day"},
        )
        def orders(context: dg.AssetExecutionContext) -> DataFrame:
            self.spark_runs += 1
            window = context.partition_time_window
            days = (window.end - window.start).days
            return SparkSession.active().sql(
                f"SELECT DATE '{window.start.date()}' + CAST(d.id AS INT) AS day, n.id AS id, "
                f"CAST({self.amount} AS BIGINT) AS amount "
                f"FROM RANGE({days}) d CROSS JOIN RANGE({ROWS_A_DAY}) n"
            )

        return orders

    def backfill(self, first: str, last: str) -> set[str | None]:
        """The days of a run over a range, tagged as Dagster tags it; those it materialized."""
        result = self._run(
            dg.AssetKey("orders"),
            tags={
                "dagster/asset_partition_range_start": first,
                "dagster/asset_partition_range_end": last,
            },
        )
        return {
            each.materialization.partition for each in result.get_asset_materialization_events()
        }

    def requested(self) -> set[dg.AssetKey]:
        """The assets that the automation sensor asks for at its next look."""
        result = dg.evaluate_automation_conditions(
            self.definitions, self.instance, cursor=self._cursor
        )
        self._cursor = result.cursor
        return {key for key in (PUBLISHED, EXTRACT) if result.get_num_requested(key)}

    def refresh(self) -> dict[str, Any]:
        """What a refresh recorded of the data source."""
        result = self._run(PUBLISHED, EXTRACT)
        (event,) = (
            e for e in result.get_asset_materialization_events() if e.asset_key == PUBLISHED
        )
        return {name: value.value for name, value in event.materialization.metadata.items()}

    def _run(self, *keys: dg.AssetKey, tags: Any = None) -> dg.ExecuteInProcessResult:
        job = self.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=self.instance, asset_selection=list(keys), tags=tags)


@pytest.fixture
def location(spark: SparkSession, tmp_path: Path) -> Iterator[Location]:
    with running_sandbox(tmp_path / "sandbox") as sandbox:
        tableau = TableauServerResource(
            server_url=sandbox.url, username=sandbox.user, password=sandbox.password
        )
        yield Location(tmp_path / "snapshots", tableau)


@pytest.mark.slow
def test_a_backfill_of_90_days_is_one_spark_run_and_one_refresh_and_a_day_again_replaces_that_day(
    location: Location, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Prevents: 90 Spark jobs or 90 publications for a backfill; one late day that ships, or
    deletes, more than itself."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path))
    assert len(location.backfill("2026-01-01", "2026-03-31")) == 90
    assert location.spark_runs == 1
    assert location.requested() == {PUBLISHED, EXTRACT}
    assert location.requested() == set()
    found = location.refresh()
    assert found["decision"] == "publish (create)"
    assert found["rows/orders"] == 90 * ROWS_A_DAY
    assert location.requested() == set()

    location.amount = 2
    assert location.backfill("2026-02-15", "2026-02-15") == {"2026-02-15"}
    assert location.requested() == {PUBLISHED, EXTRACT}
    found = location.refresh()
    assert found["decision"] == "update"
    assert (found["rows deleted/orders"], found["rows inserted/orders"]) == (ROWS_A_DAY, ROWS_A_DAY)
    assert found["rows/orders"] == 90 * ROWS_A_DAY
    assert location.requested() == set()
