from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.core.snapshot import Snapshot, Span
from tableau_pipeline.resources.snapshots import SnapshotIOManager
from tableau_pipeline_tests.snapshots.support.samples import newest, rows

# Dagster's own word for a parameter that it has had for years.
pytestmark = pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01", timezone="Europe/Paris")
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
def whole(days: Snapshot) -> None:
    SEEN["whole"] = rows(days)


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path):
    """Materializes one asset, of the days from the first to the last."""
    instance = dg.DagsterInstance.ephemeral()
    manager = SnapshotIOManager(root=str(tmp_path), spark=LazyPySparkResource(spark_config={}))

    def run(asset: dg.AssetsDefinition, first: str = "", last: str = "", **changes):
        definitions = dg.Definitions(
            assets=[changes.get("days", days_asset(partition_expr="day")), by_day, total, whole],
            resources={"io_manager": manager},
            executor=dg.in_process_executor,
        )
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


@pytest.mark.slow
def test_a_backfill_is_one_write_and_consumers_get_every_day(run, tmp_path: Path):
    """Prevents: a Spark job for each day of a backfill, days that consumers do not see, or a window
    that is deleted from a table an hour too late."""
    result = run(days_asset(partition_expr="day"), "2026-01-01", "2026-01-03")
    rows = {
        event.materialization.partition: event.materialization.metadata[
            "dagster/partition_row_count"
        ].value
        for event in result.get_asset_materialization_events()
    }
    assert rows == {"2026-01-01": 1, "2026-01-02": 2, "2026-01-03": 3}
    stored = newest(tmp_path, "days")
    assert stored
    first, second = (datetime(2025, 12, 31, 23, tzinfo=UTC) + timedelta(days=n) for n in (0, 1))
    assert stored.parts[0].span == Span(start=first, end=second, zone="Europe/Paris")
    run(days_asset(partition_expr="day"), "2026-01-05", "2026-01-05")
    run(by_day)
    assert SEEN["by day"] == {**rows, "2026-01-05": 5}
    run(total)
    assert SEEN["total"] == 11
    run(whole)
    assert SEEN["whole"] == SEEN["by day"]


@pytest.mark.slow
def test_a_step_tells_of_what_it_wrote(run, tmp_path: Path):
    """Prevents: a day whose catalog page tells of other days, or that seems to change with them."""

    def recorded(first: str, last: str) -> dict[str, tuple]:
        result = run(days_asset(partition_expr="day"), first, last)
        events = [event.materialization for event in result.get_asset_materialization_events()]
        return {
            each.partition: (
                each.metadata["version"].value,
                each.metadata["fingerprint"].value,
                each.tags["dagster/data_version"],
                each.metadata["dagster/uri"].value,
            )
            for each in events
        }

    (one,) = recorded("2026-01-01", "2026-01-01").values()
    two = recorded("2026-01-01", "2026-01-02")
    assert one[0] == 1
    assert {each[0] for each in two.values()} == {2}
    assert one[1] == one[2] == two["2026-01-01"][1]
    assert two["2026-01-01"][2] == two["2026-01-02"][2] != one[2]
    assert two["2026-01-02"][3].endswith("/_partition%3D2026-01-02")
    assert recorded("2026-01-01", "2026-01-01")["2026-01-01"][1:3] == one[1:3]


@pytest.mark.slow
def test_days_become_weeks(spark: SparkSession, tmp_path: Path):
    """Prevents: rows of a day that are in its week as well, published twice."""
    manager = SnapshotIOManager(root=str(tmp_path), spark=LazyPySparkResource(spark_config={}))
    weeks = dg.WeeklyPartitionsDefinition("2025-01-01")

    def materialize(definition: dg.PartitionsDefinition, key: str) -> None:
        @dg.asset(partitions_def=definition, metadata={"partition_expr": "day"})
        def model(context: dg.AssetExecutionContext) -> DataFrame:
            first = context.partition_time_window.start.date()
            return SparkSession.active().sql(f"SELECT DATE '{first}' AS day")

        assert dg.materialize([model], resources={"io_manager": manager}, partition_key=key).success

    days = dg.DailyPartitionsDefinition("2025-01-01")
    for key in ("2025-01-05", "2025-01-06", "2025-01-12"):
        materialize(days, key)
    assert rows(manager.snapshot("model", days)) == rows(manager.snapshot("model"))
    assert manager.snapshot("model", weeks) is None
    since = dg.DailyPartitionsDefinition("2025-01-06")
    assert list(rows(manager.snapshot("model", since))) == ["2025-01-06", "2025-01-12"]
    materialize(weeks, "2025-01-05")
    assert rows(manager.snapshot("model")) == {"2025-01-05": 1}
    assert manager.snapshot("model", days) is None


def test_a_column_with_a_blank(spark: SparkSession, tmp_path: Path):
    """Prevents: a name that is a column to everybody but SQL, which reads it as an alias."""

    @dg.asset(
        partitions_def=dg.StaticPartitionsDefinition(["a", "b"]),
        metadata={"partition_expr": "the state"},
    )
    def named() -> DataFrame:
        return SparkSession.active().sql("SELECT 'a' AS `the state`, 1 AS n")

    manager = SnapshotIOManager(root=str(tmp_path), spark=LazyPySparkResource(spark_config={}))
    assert dg.materialize([named], partition_key="a", resources={"io_manager": manager}).success
    assert rows(manager.snapshot("named")) == {"a": 1}


def test_a_partitioned_model_must_tell_its_column(run):
    """Prevents: a guess at which of the columns is the partition's."""
    with pytest.raises(dg.Failure, match="partition_expr"):
        run(days_asset(), "2026-01-01", "2026-01-01", days=days_asset())
