from pathlib import Path

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.snapshots.io_manager import SnapshotIOManager
from tableau_pipeline.snapshots.write import PartitionError

# Dagster's own word for a parameter that it has had for years.
pytestmark = pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01")
SEEN: dict[str, object] = {}


def days_asset(extra_days: int = 0, **metadata: str) -> dg.AssetsDefinition:
    """A model with as many rows a day as the day's number; some days too many if told so."""

    @dg.asset(
        name="days",
        partitions_def=DAYS,
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata=metadata,
    )
    def days(context: dg.AssetExecutionContext) -> DataFrame:
        window = context.partition_time_window
        number = (window.end - window.start).days + extra_days
        first = window.start.date()
        return SparkSession.active().sql(
            f"SELECT DATE '{first}' + CAST(d.id AS INT) AS day, n.id AS n FROM RANGE({number}) d "
            f"JOIN RANGE(31) n ON n.id < {first.day} + d.id"
        )

    return days


@dg.asset
def by_day(days: dict[str, Snapshot]) -> None:
    SEEN["by day"] = {day: snapshot.fingerprint.rows for day, snapshot in days.items()}


@dg.asset
def total(days: DataFrame) -> DataFrame:
    SEEN["total"] = days.count()
    return days.groupBy("day").count()


@dg.asset
def wrongly_annotated(days: Snapshot) -> None: ...


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path):
    """Materializes one asset, of the days from the first to the last."""
    instance = dg.DagsterInstance.ephemeral()
    manager = SnapshotIOManager(root=str(tmp_path), spark=LazyPySparkResource(spark_config={}))

    def run(asset: dg.AssetsDefinition, first: str = "", last: str = "", **changes):
        definitions = dg.Definitions(
            assets=[changes.get("days", days_asset(partition_expr="day")), by_day, total,
                    wrongly_annotated],
            resources={"io_manager": manager},
            executor=dg.in_process_executor,
        )  # fmt: skip
        tags = {
            "dagster/asset_partition_range_start": first,
            "dagster/asset_partition_range_end": last,
        }
        return definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance,
            asset_selection=[asset.key],
            tags=tags if first else {},
            raise_on_error=changes.get("raises", True),
        )

    return run


def test_a_backfill_is_one_write_and_consumers_get_every_day(run):
    """Prevents: a Spark job for each day of a backfill, or days that consumers do not see."""
    result = run(days_asset(partition_expr="day"), "2026-01-01", "2026-01-03")
    rows = {
        event.materialization.partition: event.materialization.metadata[
            "dagster/partition_row_count"
        ].value
        for event in result.get_asset_materialization_events()
    }
    assert rows == {"2026-01-01": 1, "2026-01-02": 2, "2026-01-03": 3}
    run(days_asset(partition_expr="day"), "2026-01-05", "2026-01-05")
    run(by_day)
    assert SEEN["by day"] == {**rows, "2026-01-05": 5}
    run(total)
    assert SEEN["total"] == 11


def test_one_snapshot_is_asked_for_where_there_are_several(run):
    """Prevents: a consumer that gets one day and takes it for the whole model."""
    run(days_asset(partition_expr="day"), "2026-01-01", "2026-01-02")
    result = run(wrongly_annotated, raises=False)
    (event,) = result.get_step_failure_events()
    assert "has 2 partitions: annotate the parameter dict[str, Snapshot]" in str(
        event.step_failure_data.error
    )


def test_rows_of_other_days_fail_the_run(run):
    """Prevents: a model that ignores its partition, whose rows are stored in none."""
    too_many = days_asset(1, partition_expr="day")
    with pytest.raises(PartitionError, match="rows lie outside"):
        run(too_many, "2026-01-01", "2026-01-01", days=too_many)


def test_a_partitioned_model_must_tell_its_column(run):
    """Prevents: a guess at which of the columns is the partition's."""
    with pytest.raises(dg.Failure, match="partition_expr"):
        run(days_asset(), "2026-01-01", "2026-01-01", days=days_asset())
