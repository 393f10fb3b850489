"""Models that are stored in partitions."""

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pydantic import ValidationError
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.core.snapshot import Fingerprint, Part, Snapshot, Span
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.resources.snapshots import SnapshotIOManager, partition_filter
from tableau_pipeline.snapshots.load import read_frame
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline.snapshots.write import UnstorableError, longest_step, write_partitions
from tableau_pipeline_tests.snapshots.support import newest, rows
from tableau_pipeline_tests.snapshots.support import store as store_whole
from tableau_pipeline_tests.snapshots.support import store_partitions as store

PARIS = ZoneInfo("Europe/Paris")


def daily(first: str, number: int, zone: ZoneInfo = PARIS) -> dict[str, Span]:
    start = datetime.fromisoformat(first).replace(tzinfo=zone)
    edges = [start + timedelta(days=day) for day in range(number + 1)]
    return {f"{a:%Y-%m-%d}": Span(start=a, end=b, zone=str(zone)) for a, b in pairwise(edges)}


@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("DATE", ["2026-03-28", "2026-03-29", "2026-03-29"]),
        # Local times in Paris; on the 29th, clocks skip an hour.
        (
            "TIMESTAMP_NTZ",
            ["2026-03-28 23:59:59.999999", "2026-03-29 00:00:00", "2026-03-29 23:59:00"],
        ),
        # Instants: Paris is an hour ahead of UTC on the 28th, and two hours at the end of the 29th.
        (
            "TIMESTAMP",
            ["2026-03-28 22:59:59.999999Z", "2026-03-28 23:00:00Z", "2026-03-29 21:59:00Z"],
        ),
    ],
)
def test_days_begin_at_midnight_of_the_partitions_zone(
    spark: SparkSession, tmp_path: Path, type_: str, values: list[str]
):
    """Prevents: rows of the first hours of a day are stored in the day before."""
    frame = spark.createDataFrame([(each,) for each in values], "text STRING")
    frame = frame.selectExpr(f"CAST(text AS {type_}) AS at")
    snapshots = store(frame, tmp_path, "at", daily("2026-03-28", 2))
    assert rows(snapshots) == {"2026-03-28": 1, "2026-03-29": 2}


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("Australia/Lord_Howe", "2026-10-04"),
        ("Europe/Paris", "2026-10-25"),
        ("Asia/Kathmandu", "1969-12-31"),
    ],
)
def test_hours(spark: SparkSession, tmp_path: Path, zone: str, day: str):
    """Prevents: rows are stored in the wrong hour if clocks change or zones have half hours."""
    first = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    edges = [first + timedelta(hours=number) for number in range(26)]
    spans = {f"{a:%d %H}": Span(start=a, end=b, zone=zone) for a, b in pairwise(edges)}
    near = [timedelta(0), timedelta(microseconds=1), timedelta(hours=1, microseconds=-1)]
    moments = [(edge + each, f"{edge:%d %H}") for edge in edges[:-1] for each in near]
    frame = spark.createDataFrame(moments, "at TIMESTAMP, hour STRING")
    found = read_frame(spark, store(frame, tmp_path, "at", spans)).groupBy("hour").count()
    assert {row.hour: row["count"] for row in found.collect()} == dict.fromkeys(spans, len(near))
    parts = newest(tmp_path).by_partition()
    for key in [*spans][:3]:
        assert [row.hour for row in read_frame(spark, parts[key]).collect()] == [key] * len(near)


@pytest.mark.slow
def test_the_lookup_of_three_years_of_hours():
    """Prevents: the lookup table of three years of hours has a row for each minute."""
    hours = dg.HourlyPartitionsDefinition("2023-01-01-00:00", timezone="Europe/Paris")
    keys = hours.get_partition_keys(current_time=datetime(2026, 1, 1, tzinfo=UTC))
    windows = hours.time_windows_for_partition_keys(frozenset(keys), validate=False)
    spans = [(int(each.start.timestamp()), int(each.end.timestamp())) for each in windows]
    assert longest_step(spans)[1] == 3600


def test_a_day_without_a_midnight(spark: SparkSession, tmp_path: Path):
    """Prevents: days cannot be stored in zones where clocks skip midnight."""
    frame = spark.sql("SELECT DATE '2024-09-07' + CAST(id AS INT) AS day FROM RANGE(3)")
    stored = store(frame, tmp_path, "day", daily("2024-09-07", 3, ZoneInfo("America/Santiago")))
    assert rows(stored) == {"2024-09-07": 1, "2024-09-08": 1, "2024-09-09": 1}


@pytest.mark.slow
def test_fixed_keys_with_awkward_characters(spark: SparkSession, tmp_path: Path):
    """Prevents: Spark escapes a key in the name of a folder, and readers miss the rows."""
    keys = ["a/b", "c=d %é", "{x}[y]", "plain", "no rows"]
    frame = spark.createDataFrame([(key, n) for n, key in enumerate(keys[:-1])], "k STRING, n INT")
    store(frame, tmp_path, "k", keys)
    found = newest(tmp_path)
    assert rows(found) == {**dict.fromkeys(keys, 1), "no rows": 0}
    stored = {(row.k, row.n) for row in read_frame(spark, found).collect()}
    assert stored == {(key, n) for n, key in enumerate(keys[:-1])}


def test_the_key_by_which_spark_names_no_partition(spark: SparkSession, tmp_path: Path):
    """Prevents: a key that Spark reserves for rows without a key shows as an error of Python."""
    frame = spark.createDataFrame([("__HIVE_DEFAULT_PARTITION__",)], "k STRING")
    with pytest.raises(UnstorableError, match=r'key "__HIVE_DEFAULT_PARTITION__" is reserved'):
        store(frame, tmp_path, "k", ["a", "__HIVE_DEFAULT_PARTITION__"])


@pytest.mark.slow
def test_fingerprints_add_up_to_that_of_the_whole(spark: SparkSession, tmp_path: Path):
    """Prevents: equal rows get another fingerprint when they are stored in partitions."""
    frame = spark.range(1_000).selectExpr("id", "DATE '2026-01-01' + CAST(id % 3 AS INT) AS day")
    whole = store_whole(frame, tmp_path, "whole")
    parts = store(frame, tmp_path, "day", daily("2026-01-01", 4))
    assert len(parts.parts) == 4
    assert parts.fingerprint == whole.fingerprint


@pytest.mark.slow
def test_partitions_that_no_longer_belong_go_with_the_next_write(
    spark: SparkSession, tmp_path: Path
):
    """Prevents: rows of a partition that the model no longer has stay published for ever."""
    frame = spark.sql("SELECT DATE '2026-01-01' + CAST(id AS INT) AS day FROM RANGE(3)")
    store(frame, tmp_path, "day", daily("2026-01-01", 3))
    written = write_partitions(
        frame.where("day = DATE '2026-01-03'"),
        SnapshotStore(tmp_path),
        expression="day",
        partitions=daily("2026-01-03", 1),
        asset_key="model",
        run_id="test",
        keeps=lambda part: part.partition != "2026-01-01",
    )
    assert rows(written) == {"2026-01-02": 1, "2026-01-03": 1}
    assert [part.version for part in written.parts] == [1, 2]


@pytest.mark.slow
def test_partitions_of_different_columns_are_refused(spark: SparkSession, tmp_path: Path):
    """Prevents: a new column is silently NULL in partitions that were written earlier."""
    frame = spark.sql("SELECT DATE '2026-01-01' AS day FROM RANGE(3)")
    store(frame, tmp_path, "day", daily("2026-01-01", 1))
    mixed = store(
        frame.selectExpr("day + 1 AS day", "1 AS n"), tmp_path, "day", daily("2026-01-02", 1)
    )
    with pytest.raises(RefusedError, match=r'"model": its partition 2026-01-01 .* n \(int\)'):
        read_frame(spark, mixed)
    assert read_frame(spark, mixed.only(["2026-01-01"])).count() == 3


DAYS = dg.DailyPartitionsDefinition("2025-01-01")
WEEKS = dg.WeeklyPartitionsDefinition("2025-01-01")


def part(key: str | None, definition: dg.PartitionsDefinition | None = None) -> Part:
    """Return a part as it is stored under a definition of partitions."""
    span = None
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        window = definition.time_window_for_partition_key(str(key))
        span = Span(start=window.start, end=window.end, zone=definition.timezone)
    none = Fingerprint(rows=0, hash_sum=0)
    return Part(partition=key, span=span, version=1, fingerprint=none, files=())


@pytest.mark.parametrize(
    ("key", "before", "now", "belongs"),
    [
        ("2025-01-05", DAYS, DAYS, True),
        ("2025-01-05", WEEKS, WEEKS, True),
        ("2025-01-05", DAYS, WEEKS, False),
        ("2025-01-05", WEEKS, DAYS, False),
        ("2025-01-06", DAYS, WEEKS, False),
        ("2025-01-05", DAYS, dg.DailyPartitionsDefinition("2025-01-05"), True),
        ("2025-01-05", DAYS, dg.DailyPartitionsDefinition("2025-01-06"), False),
        ("2025-01-05", DAYS, dg.DailyPartitionsDefinition("2025-01-01", end_date="2025-01-05"),
         False),
        ("2025-01-05", DAYS, dg.DailyPartitionsDefinition("2025-01-01", timezone="Asia/Tokyo"),
         False),
        ("2025-01-05", DAYS, dg.DailyPartitionsDefinition("2025-01-01", timezone="Etc/UTC"), True),
        ("2025-01-05", DAYS, dg.DailyPartitionsDefinition("2025-01-01", hour_offset=6), False),
        ("2025-01-05", DAYS, dg.HourlyPartitionsDefinition("2025-01-01-00:00"), False),
        ("2025-01-05", DAYS, dg.MonthlyPartitionsDefinition("2025-01-01"), False),
        ("2025-01-05", DAYS, dg.StaticPartitionsDefinition(["2025-01-05"]), False),
        ("2025-01-05", None, DAYS, False),
        ("x", None, DAYS, False),
        (None, None, DAYS, False),
        ("a", None, dg.StaticPartitionsDefinition(["a", "b"]), True),
        ("c", None, dg.StaticPartitionsDefinition(["a", "b"]), False),
        (None, None, dg.StaticPartitionsDefinition(["a", "b"]), False),
        ("c", None, dg.DynamicPartitionsDefinition(name="x"), True),
        ("2025-01-05", DAYS, None, True),
        (None, None, None, True),
    ],
)  # fmt: skip
def test_key_and_window_count(
    key: str | None,
    before: dg.PartitionsDefinition | None,
    now: dg.PartitionsDefinition | None,
    belongs: bool,
):
    """Prevents: a day passes for the week with the same key, or a dropped key keeps its rows."""
    assert partition_filter(now)(part(key, before)) == belongs


def test_excluded_windows():
    """Prevents: a day that is excluded from the partitions keeps its rows."""
    cron = {"start": "2025-01-01", "fmt": "%Y-%m-%d", "cron_schedule": "0 0 * * *"}
    definition = dg.TimeWindowPartitionsDefinition(**cron, exclusions=["0 0 * * 0"])
    sunday, monday = part("2025-01-05", DAYS), part("2025-01-06", DAYS)
    assert [partition_filter(definition)(each) for each in (sunday, monday)] == [False, True]


def test_a_clock_that_is_behind_loses_nothing():
    """Prevents: a worker whose clock is slow drops a partition that is already stored."""
    stored = part("2025-03-01", DAYS)
    with dg.partition_loading_context(effective_dt=datetime(2025, 3, 1, 23, 57, tzinfo=UTC)):
        assert not DAYS.has_partition_key("2025-03-01")
        assert partition_filter(DAYS)(stored)


def test_hours_over_the_change_of_clocks():
    """Prevents: hours are dropped on days when clocks change."""
    for zone, day in (("Europe/Paris", "2026-10-25"), ("Australia/Lord_Howe", "2026-10-04")):
        hours = dg.HourlyPartitionsDefinition(f"{day}-00:00", timezone=zone)
        at = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=2)
        keys = hours.get_partition_keys(current_time=at)
        parts = [part(key, hours) for key in keys]
        assert len(parts) > 24
        assert all(map(partition_filter(hours), parts))


@pytest.mark.slow
def test_three_years_of_hours():
    """Prevents: a write of one hour spends seconds on a check of all other hours."""
    hours = dg.HourlyPartitionsDefinition("2023-01-01-00:00", timezone="Europe/Paris")
    keys = hours.get_partition_keys(current_time=datetime(2026, 1, 1, tzinfo=UTC))
    windows = hours.time_windows_for_partition_keys(frozenset(keys), validate=False)
    one = part(keys[0], hours)
    parts = [
        one.model_copy(
            update={"partition": key, "span": Span(start=w.start, end=w.end, zone="Europe/Paris")}
        )
        for key, w in zip(keys, windows, strict=True)
    ]
    started = time.process_time()
    assert all(map(partition_filter(hours), parts))
    assert time.process_time() - started < 2
    assert len(parts) > 26_000


# Dagster warns that this parameter is in beta, although Dagster has had it for years.
pytestmark = pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")

JANUARY = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-02-01", timezone="Europe/Paris")
SEEN: dict[str, object] = {}


@dg.asset(
    partitions_def=JANUARY,
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={"partition_expr": "day"},
)
def days(context: dg.AssetExecutionContext) -> DataFrame:
    """Return, for each day, as many rows as the number of the day."""
    window = context.partition_time_window
    number, first = (window.end - window.start).days, window.start.date()
    return SparkSession.active().sql(
        f"SELECT DATE '{first}' + CAST(d.id AS INT) AS day, n.id AS n FROM RANGE({number}) d "
        f"JOIN RANGE(31) n ON n.id < {first.day} + d.id"
    )


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
    """Return a function that materializes an asset, with or without a range of days."""
    instance = dg.DagsterInstance.ephemeral()
    manager = SnapshotIOManager(root=str(tmp_path), spark=LazyPySparkResource(spark_config={}))

    def run(asset: dg.AssetsDefinition, first: str = "", last: str = "", model=days):
        definitions = dg.Definitions(
            assets=[model, by_day, total, whole],
            resources={"io_manager": manager},
            executor=dg.in_process_executor,
        )
        range_ = "dagster/asset_partition_range"
        return definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance,
            asset_selection=[asset.key],
            tags={f"{range_}_start": first, f"{range_}_end": last} if first else {},
        )

    return run


@pytest.mark.slow
def test_a_backfill_is_one_write_and_consumers_get_every_day(run, tmp_path: Path):
    """Prevents: a backfill runs a Spark job for each day, or consumers do not get all days."""
    result = run(days, "2026-01-01", "2026-01-03")
    rows = {
        event.materialization.partition: event.materialization.metadata[
            "dagster/partition_row_count"
        ].value
        for event in result.get_asset_materialization_events()
    }
    assert rows == {"2026-01-01": 1, "2026-01-02": 2, "2026-01-03": 3}
    stored = newest(tmp_path, "days")
    first, second = (datetime(2025, 12, 31, 23, tzinfo=UTC) + timedelta(days=n) for n in (0, 1))
    assert stored.parts[0].span == Span(start=first, end=second, zone="Europe/Paris")
    run(days, "2026-01-05", "2026-01-05")
    run(by_day)
    assert SEEN["by day"] == {**rows, "2026-01-05": 5}
    run(total)
    assert SEEN["total"] == 11
    run(whole)
    assert SEEN["whole"] == SEEN["by day"]


@pytest.mark.slow
def test_a_step_tells_of_what_it_wrote(run, tmp_path: Path):
    """Prevents: the materialization of a day describes other days, or changes with other days."""

    def recorded(first: str, last: str) -> dict[str, tuple]:
        result = run(days, first, last)
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


def test_a_column_with_a_blank(spark: SparkSession, tmp_path: Path):
    """Prevents: SQL reads a column name with a space as a name and an alias."""

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
    """Prevents: a model declares no column for partitions, and the pipeline guesses the column."""

    @dg.asset(partitions_def=JANUARY, backfill_policy=dg.BackfillPolicy.single_run())
    def days() -> DataFrame:
        return SparkSession.active().range(1)

    with pytest.raises(dg.Failure, match="partition_expr"):
        run(days, "2026-01-01", "2026-01-01", model=days)


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize("zone", ["Europe/Paris", "Asia/Kathmandu", "America/St_Johns"])
@pytest.mark.parametrize("fold", [0, 1])
def test_instants_survive_json(zone: str, fold: int):
    # Prevents: a span changes when a manifest is written and read.
    start = datetime(2026, 10, 25, 2, 30, 0, 1, tzinfo=ZoneInfo(zone), fold=fold)
    span = Span(start=start, end=start.astimezone(UTC) + timedelta(microseconds=1), zone=zone)
    read = Span.model_validate_json(span.model_dump_json())
    assert read == span
    assert read.start.timestamp() == start.timestamp()
    assert read.end - read.start == timedelta(microseconds=1)


def test_a_time_without_a_zone_is_no_edge():
    # Prevents: a span means different times on different machines.
    with pytest.raises(ValidationError, match="timezone"):
        Span(start=datetime(2026, 1, 1), end=instant("2026-01-02"), zone="UTC")
