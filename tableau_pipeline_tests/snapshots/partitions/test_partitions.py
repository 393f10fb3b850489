from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from tableau_pipeline.core.snapshot import Span
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.snapshots.load import read_frame
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline.snapshots.write import (
    UnstorableError,
    write_partitions,
)
from tableau_pipeline_tests.snapshots.support.samples import newest, rows
from tableau_pipeline_tests.snapshots.support.samples import store as store_whole
from tableau_pipeline_tests.snapshots.support.samples import store_partitions as store

PARIS = ZoneInfo("Europe/Paris")


def days(first: str, number: int, zone: ZoneInfo = PARIS) -> dict[str, Span]:
    start = datetime.fromisoformat(first).replace(tzinfo=zone)
    edges = [start + timedelta(days=day) for day in range(number + 1)]
    return {f"{a:%Y-%m-%d}": Span(start=a, end=b, zone=str(zone)) for a, b in pairwise(edges)}


@pytest.mark.few_variants(1)
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


def test_a_day_without_a_midnight(spark: SparkSession, tmp_path: Path):
    """Prevents: days that cannot be stored where clocks are turned forward at midnight."""
    frame = spark.sql("SELECT DATE '2024-09-07' + CAST(id AS INT) AS day FROM RANGE(3)")
    stored = store(frame, tmp_path, "day", days("2024-09-07", 3, ZoneInfo("America/Santiago")))
    assert rows(stored) == {"2024-09-07": 1, "2024-09-08": 1, "2024-09-09": 1}


@pytest.mark.slow
def test_fixed_keys_with_awkward_characters(spark: SparkSession, tmp_path: Path):
    """Prevents: a key that Spark escapes in the folder's name, and whose rows no reader finds."""
    keys = ["a/b", "c=d %é", "{x}[y]", "plain", "no rows"]
    frame = spark.createDataFrame([(key, n) for n, key in enumerate(keys[:-1])], "k STRING, n INT")
    store(frame, tmp_path, "k", keys)
    found = newest(tmp_path)
    assert found
    assert rows(found) == {**dict.fromkeys(keys, 1), "no rows": 0}
    stored = {(row.k, row.n) for row in read_frame(spark, found).collect()}
    assert stored == {(key, n) for n, key in enumerate(keys[:-1])}


def test_the_key_by_which_spark_names_no_partition(spark: SparkSession, tmp_path: Path):
    """Prevents: an error of Python's in place of the key, whose rows Spark stores as of no key."""
    frame = spark.createDataFrame([("__HIVE_DEFAULT_PARTITION__",)], "k STRING")
    with pytest.raises(UnstorableError, match=r'key "__HIVE_DEFAULT_PARTITION__" is reserved'):
        store(frame, tmp_path, "k", ["a", "__HIVE_DEFAULT_PARTITION__"])


def test_fingerprints_add_up_to_that_of_the_whole(spark: SparkSession, tmp_path: Path):
    """Prevents: partitions summed another way than whole models, so that nothing is ever proved."""
    frame = spark.range(1_000).selectExpr("id", "DATE '2026-01-01' + CAST(id % 3 AS INT) AS day")
    whole = store_whole(frame, tmp_path, "whole")
    parts = store(frame, tmp_path, "day", days("2026-01-01", 4))
    assert len(parts.parts) == 4
    assert parts.fingerprint == whole.fingerprint


def test_partitions_that_no_longer_belong_go_with_the_next_write(
    spark: SparkSession, tmp_path: Path
):
    """Prevents: rows of a partition that the model no longer has, published for ever."""
    frame = spark.sql("SELECT DATE '2026-01-01' + CAST(id AS INT) AS day FROM RANGE(3)")
    store(frame, tmp_path, "day", days("2026-01-01", 3))
    written = write_partitions(
        frame.where("day = DATE '2026-01-03'"),
        SnapshotStore(tmp_path),
        expression="day",
        partitions=days("2026-01-03", 1),
        asset_key="model",
        run_id="test",
        keeps=lambda part: part.partition != "2026-01-01",
    )
    assert rows(written) == {"2026-01-02": 1, "2026-01-03": 1}
    assert [part.version for part in written.parts] == [1, 2]


@pytest.mark.slow
def test_partitions_of_different_columns_are_refused(spark: SparkSession, tmp_path: Path):
    """Prevents: a column that is silently NULL, or missing, in the partitions of another age."""
    frame = spark.sql("SELECT DATE '2026-01-01' AS day FROM RANGE(3)")
    store(frame, tmp_path, "day", days("2026-01-01", 1))
    mixed = store(
        frame.selectExpr("day + 1 AS day", "1 AS n"), tmp_path, "day", days("2026-01-02", 1)
    )
    with pytest.raises(RefusedError, match=r'"model": its partition 2026-01-01 .* n \(int\)'):
        read_frame(spark, mixed)
    assert read_frame(spark, mixed.only(["2026-01-01"])).count() == 3
