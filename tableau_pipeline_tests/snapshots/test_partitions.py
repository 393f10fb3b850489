from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.core.snapshot import Fingerprint, Snapshot, common_columns
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.snapshots.partitions import PartitionError, Window
from tableau_pipeline.snapshots.read import read_frame
from tableau_pipeline.snapshots.store import new_folder, newest
from tableau_pipeline.snapshots.write import write_partitions, write_snapshot

PARIS = ZoneInfo("Europe/Paris")


def days(first: str, number: int, zone: ZoneInfo = PARIS) -> dict[str, Window]:
    start = datetime.fromisoformat(first).replace(tzinfo=zone)
    edges = [start + timedelta(days=day) for day in range(number + 1)]
    return {f"{a:%Y-%m-%d}": Window(a, b) for a, b in pairwise(edges)}


def store(
    frame: DataFrame, root: Path, expression: str, partitions: Mapping[str, Window] | list[str]
) -> dict[str, Snapshot]:
    snapshots = write_partitions(
        frame,
        new_folder(root, "model"),
        expression=expression,
        partitions=partitions,
        asset_key="model",
        run_id="test",
    )
    return {str(snapshot.partition): snapshot for snapshot in snapshots}


def rows(snapshots: Mapping[str, Snapshot]) -> dict[str, int]:
    return {key: snapshot.fingerprint.rows for key, snapshot in snapshots.items()}


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("DATE", ["2026-03-28", "2026-03-29", "2026-03-29"]),
        # The wall clock of Paris, of which an hour is missing on the 29th.
        (
            "TIMESTAMP_NTZ",
            ["2026-03-28 23:59:59.999999", "2026-03-29 00:00:00", "2026-03-29 23:59:00"],
        ),
        # Instants: Paris is an hour ahead of UTC on the 28th, two at the end of the 29th.
        (
            "TIMESTAMP",
            ["2026-03-28 22:59:59.999999Z", "2026-03-28 23:00:00Z", "2026-03-29 21:59:00Z"],
        ),
    ],
)
def test_days_begin_at_midnight_of_the_partitions_zone(
    spark: SparkSession, tmp_path: Path, type_: str, values: list[str]
):
    """Prevents: rows of the first hours of a day in the partition of the day before."""
    frame = spark.createDataFrame([(each,) for each in values], "text STRING")
    frame = frame.selectExpr(f"CAST(text AS {type_}) AS at")
    snapshots = store(frame, tmp_path, "at", days("2026-03-28", 2))
    assert rows(snapshots) == {"2026-03-28": 1, "2026-03-29": 2}


def test_hours_over_the_change_of_clocks(spark: SparkSession, tmp_path: Path):
    """Prevents: the hour after the change in the wrong partition, or in none."""
    edges = [
        datetime(2026, 3, 29, hour, tzinfo=ZoneInfo("UTC")).astimezone(PARIS) for hour in (0, 1, 2)
    ]
    windows = {f"{a:%H:%M}": Window(a, b) for a, b in pairwise(edges)}
    assert list(windows) == ["01:00", "03:00"]
    frame = spark.sql(
        "SELECT EXPLODE(SEQUENCE(TIMESTAMP '2026-03-29 00:00:00Z', "
        "TIMESTAMP '2026-03-29 01:45:00Z', "
        "INTERVAL 15 MINUTES)) AS at"
    )
    assert rows(store(frame, tmp_path, "at", windows)) == {"01:00": 4, "03:00": 4}
    with pytest.raises(PartitionError, match="at_day is date, but has to be a timestamp"):
        store(frame.selectExpr("DATE(at) AS at_day"), tmp_path, "at_day", windows)


def test_fixed_keys_with_awkward_characters(spark: SparkSession, tmp_path: Path):
    """Prevents: a key that Spark escapes in the folder's name, and whose rows nobody finds."""
    keys = ["a/b", "c=d %é", "{x}[y]", "plain", "no rows"]
    frame = spark.createDataFrame([(key, n) for n, key in enumerate(keys[:-1])], "k STRING, n INT")
    store(frame, tmp_path, "k", keys)
    found = {snapshot.partition: snapshot for snapshot in newest(tmp_path, "model")}
    assert rows(found) == {**dict.fromkeys(keys, 1), "no rows": 0}
    stored = {(row.k, row.n) for row in read_frame(spark, list(found.values())).collect()}
    assert stored == {(key, n) for n, key in enumerate(keys[:-1])}


def test_fingerprints_add_up_to_that_of_the_whole(spark: SparkSession, tmp_path: Path):
    """Prevents: partitions summed another way than whole models, so that nothing is ever proved."""
    frame = spark.range(1_000).selectExpr("id", "DATE '2026-01-01' + CAST(id % 3 AS INT) AS day")
    whole = write_snapshot(frame, new_folder(tmp_path, "whole"), asset_key="whole", run_id="test")
    parts = store(frame, tmp_path, "day", days("2026-01-01", 4))
    total = sum(
        (part.fingerprint for part in parts.values()), start=Fingerprint(rows=0, hash_sum=0)
    )
    assert total == whole.fingerprint


def test_rows_outside_the_run_are_refused_and_nothing_is_left(spark: SparkSession, tmp_path: Path):
    """Prevents: rows that vanish because no partition of the run is theirs."""
    frame = spark.sql("SELECT DATE '2026-01-01' + CAST(id AS INT) AS day FROM RANGE(3)")
    with pytest.raises(
        PartitionError, match=r"1 row lie.* outside .* day, for instance 2026-01-03"
    ):
        store(frame, tmp_path, "day", days("2026-01-01", 2))
    nulls = spark.sql("SELECT CAST(NULL AS DATE) AS day")
    with pytest.raises(PartitionError, match="for instance None"):
        store(nulls, tmp_path, "day", days("2026-01-01", 2))
    assert newest(tmp_path, "model") == ()
    assert list((tmp_path / "model").iterdir()) == []


def test_each_partition_has_its_own_newest_snapshot(spark: SparkSession, tmp_path: Path):
    """Prevents: one day materialized again taking the other days away, or not counting."""
    frame = spark.sql("SELECT DATE '2026-01-01' + CAST(id % 2 AS INT) AS day FROM RANGE(10)")
    store(frame, tmp_path, "day", days("2026-01-01", 2))
    again = frame.where("day = DATE '2026-01-02'").limit(1)
    store(again, tmp_path, "day", days("2026-01-02", 1))
    found = {str(snapshot.partition): snapshot for snapshot in newest(tmp_path, "model")}
    assert rows(found) == {"2026-01-01": 5, "2026-01-02": 1}


def test_the_newest_write_tells_whether_a_model_is_partitioned(spark: SparkSession, tmp_path: Path):
    """Prevents: rows twice after a model was partitioned, or no longer is."""
    frame = spark.sql("SELECT DATE '2026-01-01' AS day FROM RANGE(3)")
    store(frame, tmp_path, "day", days("2026-01-01", 1))
    folder = new_folder(tmp_path, "model")
    write_snapshot(frame, folder, asset_key="model", run_id="test")
    assert [snapshot.partition for snapshot in newest(tmp_path, "model")] == [None]
    store(frame, tmp_path, "day", days("2026-01-01", 1))
    assert [snapshot.partition for snapshot in newest(tmp_path, "model")] == ["2026-01-01"]


def test_partitions_of_different_columns_are_refused(spark: SparkSession, tmp_path: Path):
    """Prevents: a column that is silently NULL, or missing, in the partitions of another age."""
    frame = spark.sql("SELECT DATE '2026-01-01' AS day FROM RANGE(3)")
    store(frame, tmp_path, "day", days("2026-01-01", 1))
    store(frame.selectExpr("day + 1 AS day", "1 AS n"), tmp_path, "day", days("2026-01-02", 1))
    with pytest.raises(RefusedError, match=r'"model".*2026-01-01 and 2026-01-02 .* n \(int\)'):
        common_columns(newest(tmp_path, "model"))
