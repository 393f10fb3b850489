"""Snapshots in an object store hold what they would hold on a disk."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tableau_pipeline.core.snapshot import Snapshot, Span
from tableau_pipeline.extracts.desired import table_source
from tableau_pipeline.hyper.build import build_extract
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.objects import arrow_files
from tableau_pipeline.objects.local import LocalCopies
from tableau_pipeline.objects.stores import ObjectFolder
from tableau_pipeline.snapshots.load import read_frame
from tableau_pipeline.snapshots.store import ObjectStorage, SnapshotStore
from tableau_pipeline.snapshots.write import (
    PartitionError,
    write_partitions,
    write_rows,
    write_snapshot,
)
from tableau_pipeline_tests.snapshots.test_models import ODD_NAMES, TYPES, texts

UTC = ZoneInfo("UTC")
DAYS = {
    f"2024-03-0{day}": Span(
        start=datetime(2024, 3, day, tzinfo=UTC),
        end=datetime(2024, 3, day + 1, tzinfo=UTC),
        zone="UTC",
    )
    for day in (1, 2, 3)
}


@pytest.fixture
def objects(tmp_path: Path) -> SnapshotStore:
    """An empty store of objects; the library that speaks to them also keeps them in a folder."""
    root = tmp_path / "objects"
    root.mkdir()
    return SnapshotStore(ObjectStorage(root.as_uri(), LocalCopies(tmp_path / "copies", 10**9)))


def write(frame: DataFrame, store: SnapshotStore) -> Snapshot:
    return write_snapshot(frame, store, asset_key="area/model", run_id="test")


def test_every_type_survives(spark: SparkSession, objects: SnapshotStore, tmp_path: Path):
    """Prevents: a model that has other values or types when it is read, or another fingerprint in
    an object store."""
    # Arrow has no such interval in Python.
    values = [value for value in [*TYPES, *ODD_NAMES] if "year to month" not in value]
    columns = [f"{value} AS `odd ``name, x.y {number}`" for number, value in enumerate(values)]
    nulls = ["NULL"] * len(values)
    frame = spark.sql(f"SELECT {', '.join(columns)} UNION ALL SELECT {', '.join(nulls)}")
    stored = write(frame, objects)
    on_disk = write(frame, SnapshotStore(tmp_path / "disk"))
    assert stored.data_version == on_disk.data_version
    found, from_disk = read_frame(spark, stored), read_frame(spark, on_disk)
    assert found.schema == from_disk.schema
    assert from_disk.dtypes == frame.dtypes
    assert texts(found) == texts(from_disk) == texts(frame)


def test_hyperd_reads_what_was_stored(spark: SparkSession, objects: SnapshotStore, tmp_path: Path):
    """Prevents: objects that Spark can read and hyperd cannot; files that are fetched although
    nothing reads them."""
    frame = spark.range(10_000).repartition(3).withColumn("text", F.concat(F.lit("é"), "id"))
    stored = write(frame, objects)
    assert len(stored.files) == 3
    table = table_source("Extract", stored)
    assert not (tmp_path / "copies").exists()
    built = build_extract(hyper_process(), tmp_path / "x.hyper", tables=[table])
    assert built.rows == {"Extract": 10_000}
    assert objects.newest("area/model") == stored


def test_rows_that_fill_their_last_row_group(
    spark: SparkSession, objects: SnapshotStore, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a file that fails whenever its rows end where a row group does."""
    # Sent to the workers together with the code.
    monkeypatch.setattr(arrow_files, "_ROW_GROUP", 1)
    stored = write(spark.range(25_000, numPartitions=1), objects)
    assert read_frame(spark, stored).count() == 25_000


def test_objects_that_nobody_sees_are_no_version(
    spark: SparkSession, objects: SnapshotStore, tmp_path: Path
):
    """Prevents: a version without files, because the executors have written to another store."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    @dataclass(frozen=True, slots=True)
    class Astray(ObjectFolder):
        def missing(self, names: Sequence[str]) -> list[str]:
            return ObjectFolder(elsewhere.as_uri(), self.key, self.copies).missing(names)

    found = objects.folder("model")
    assert isinstance(found, ObjectFolder)
    astray = Astray(found.url, found.key, found.copies)
    rows = spark.range(5).withColumn("_row_hash", F.col("id"))
    with pytest.raises(RuntimeError, match="there is no such object as seen from here"):
        write_rows(rows, astray, "@data/x", asset_key="model")


def test_partitions_are_stored_apart(spark: SparkSession, objects: SnapshotStore):
    """Prevents: rows in the files of another partition, or a partition that loses its rows."""
    day = "date'2024-03-01' + CAST(id % 2 AS int)"
    frame = spark.range(1_000).repartition(4).withColumn("day", F.expr(day))
    stored = write_partitions(
        frame, objects, expression="day", partitions=DAYS, asset_key="model", run_id="test"
    )
    rows = {part.partition: part.fingerprint.rows for part in stored.parts}
    assert rows == {"2024-03-01": 500, "2024-03-02": 500, "2024-03-03": 0}
    for key, part in stored.by_partition().items():
        assert Counter(str(row.day) for row in read_frame(spark, part).collect()) == (
            {key: 500} if rows[key] else {}
        )


def test_a_stray_row_is_refused(spark: SparkSession, objects: SnapshotStore):
    """Prevents: rows of no partition that are stored in none, without a word."""
    frame = spark.range(3).withColumn("day", F.expr("date'2024-03-01' + CAST(id * 10 AS int)"))
    with pytest.raises(PartitionError, match="2 rows lie outside"):
        write_partitions(
            frame, objects, expression="day", partitions=DAYS, asset_key="model", run_id="test"
        )
    assert not [*objects.storage.list("")]


def test_a_failed_write_leaves_nothing(spark: SparkSession, objects: SnapshotStore):
    """Prevents: objects that no version names, after each failed run."""
    divided = spark.range(20, numPartitions=2).withColumn("x", F.expr("1 / (id - 19)"))
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        write(divided, objects)
    assert not [*objects.storage.list("")]


def test_missing_objects_are_named(spark: SparkSession, objects: SnapshotStore):
    """Prevents: an update that builds on files which an administrator removed from the bucket."""
    stored = write(spark.range(10).repartition(2), objects)
    assert stored.missing() == []
    lost = stored.files[0].name
    assert objects.storage.delete(f"area/model/{lost}")
    assert stored.missing() == [stored.folder.uri(lost)]


def test_an_empty_model(spark: SparkSession, objects: SnapshotStore):
    """Prevents: a model without rows that cannot be stored, or read again."""
    values = [f"{value} AS `odd ``name, x.y {number}`" for number, value in enumerate(ODD_NAMES)]
    frame = spark.sql(f"SELECT {', '.join(values)}")
    stored = write(frame.where("false"), objects)
    assert stored.fingerprint.rows == 0
    assert (stored.paths, stored.missing()) == ((), [])
    found = read_frame(spark, stored)
    assert found.schema == read_frame(spark, write(frame, objects)).schema
    assert found.count() == 0


def test_partitions_without_rows(spark: SparkSession, objects: SnapshotStore):
    """Prevents: a model that cannot be read until one of its partitions has rows."""
    frame = spark.sql("SELECT date'2024-03-01' AS day, named_struct('x, y', 1) AS `a b` LIMIT 0")
    stored = write_partitions(
        frame, objects, expression="day", partitions=DAYS, asset_key="model", run_id="test"
    )
    assert {part.partition: part.fingerprint.rows for part in stored.parts} == dict.fromkeys(
        DAYS, 0
    )
    assert read_frame(spark, stored).schema["a b"].dataType.simpleString() == "struct<x, y:int>"
    assert read_frame(spark, stored).count() == 0
