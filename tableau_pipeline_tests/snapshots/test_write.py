from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tableau_pipeline.core.snapshot import Fingerprint, Snapshot
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline.snapshots.write import UnstorableError
from tableau_pipeline_tests.snapshots.support.samples import newest, store


def test_a_snapshot_says_what_it_holds(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents a manifest that differs from the files it commits."""
    frame = spark.sql("SELECT id AS `a.b`, 'x' AS c FROM range(10)").repartition(2)
    snapshot = store(frame, tmp_path, "area/model")
    assert snapshot == newest(tmp_path, "area/model")
    assert [(column.name, column.type) for column in snapshot.columns] == [
        ("a.b", "bigint"),
        ("c", "string"),
    ]
    (part,) = snapshot.parts
    assert snapshot.fingerprint.rows == sum(file.rows for file in part.files) == 10
    assert (part.version, snapshot.number) == (1, 1)
    stored = set((snapshot.folder.path / "@data").rglob("*.parquet"))
    assert {snapshot.folder.path / file.name for file in part.files} == stored
    assert snapshot.size == sum(path.stat().st_size for path in stored)


@pytest.mark.parametrize("emptied", ["no rows", "no partitions", "all filtered out"])
def test_an_empty_model_can_be_stored(emptied: str, spark: SparkSession, tmp_path: Path) -> None:
    """Prevents a hang or a failure where Spark optimizes the whole job away."""
    frames: dict[str, DataFrame] = {
        "no rows": spark.createDataFrame([], "id bigint"),
        "no partitions": spark.createDataFrame(spark.sparkContext.emptyRDD(), "id bigint"),
        "all filtered out": spark.range(5).where("id > 9"),
    }
    snapshot = store(frames[emptied], tmp_path)
    assert snapshot.fingerprint == Fingerprint(rows=0, hash_sum=0)
    assert snapshot.paths == ()
    assert newest(tmp_path) == snapshot


def test_a_failed_write_leaves_no_folder(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents half a model that looks like a whole one, and garbage after each failure."""
    earlier = store(spark.range(1), tmp_path)
    frame = spark.range(0, 1000, numPartitions=2).select(
        F.when(F.col("id") < 900, F.col("id")).otherwise(F.raise_error(F.lit("boom"))).alias("id")
    )
    with pytest.raises(PySparkException, match="boom"):
        store(frame, tmp_path)
    assert len(list((tmp_path / "model" / "@data").iterdir())) == 1
    assert newest(tmp_path) == earlier


def test_an_interrupt_right_after_the_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents a version without its files, which the run that was stopped has cleaned up."""
    commit = SnapshotStore.commit

    def interrupted(*args: Any) -> Snapshot:
        commit(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(SnapshotStore, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store(spark.range(3), tmp_path)
    found = newest(tmp_path)
    assert found
    assert found.missing() == []
    assert spark.read.parquet(*found.paths).count() == 3


@pytest.mark.parametrize(
    ("sql", "parts"),
    [
        ("SELECT 1 AS a, NULL AS `b c`", ["'b c'", "void", "cast it"]),
        ("SELECT make_interval(1) AS pause", ["'pause'", "interval", "cast it to a number"]),
        ("SELECT array(struct(make_interval(1))) AS pause", ["'pause'", "interval"]),
        ("SELECT time'12:00:00' AS at", ["'at'", "time", "cast it"]),
        # Spark writes such keys as JSON by their place in memory: no hash is the same twice.
        ("SELECT array(map(X'00', 1)) AS m", ["'m'", "map"]),
        ("SELECT struct(map(array(1), 1)) AS m", ["'m'", "map"]),
        ("SELECT map(struct(1), 1) AS m", ["'m'", "map"]),
        ("SELECT 1 AS _row_hash", ["'_row_hash'", "reserved", "rename"]),
        ("SELECT 1 AS _partition", ["'_partition'", "reserved", "rename"]),
        ("SELECT 1 AS _Row_Hash", ["'_Row_Hash'", "reserved", "rename"]),
        ("SELECT 1 AS id, 2 AS x, 3 AS ID", ["'id', 'ID'", "case", "rename"]),
        ("SELECT 1 AS `straße`, 2 AS STRASSE", ["'straße', 'STRASSE'", "case", "rename"]),
        ("SELECT 1 AS a, 2 AS a", ["'a', 'a'", "rename"]),
        ("SELECT NULL AS a, 1 AS _row_hash", ["'a'", "void", "'_row_hash'"]),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(
    sql: str, parts: list[str], spark: SparkSession, tmp_path: Path
) -> None:
    """Prevents errors from deep inside Spark that name neither the model nor the column."""
    with pytest.raises(UnstorableError) as refusal:
        store(spark.sql(sql), tmp_path / "data", "area/model")
    for part in ['"area/model"', *parts]:
        assert part in str(refusal.value)
    assert not (tmp_path / "data").exists()


def test_a_column_without_a_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents an error from deep inside Spark that names neither the model nor the column."""
    with pytest.raises(UnstorableError, match=r'"model" .*the name of column 2 is empty: name it'):
        store(spark.sql("SELECT 1, 2").toDF("id", ""), tmp_path / "data")


def test_a_model_without_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents Parquet files that no reader opens."""
    with pytest.raises(UnstorableError, match=r'"model".*no columns'):
        store(spark.range(1).select(), tmp_path / "data")
    assert not (tmp_path / "data").exists()
