from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tableau_pipeline.core.snapshot import Fingerprint, Snapshot
from tableau_pipeline.snapshots.storable import UnstorableError
from tableau_pipeline.snapshots.store import is_committed, new_folder
from tableau_pipeline.snapshots.write import write_snapshot
from tableau_pipeline_tests.snapshots.samples import newest_one, store


def test_a_snapshot_says_what_it_holds(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents a manifest that differs from the files it commits."""
    frame = spark.sql("SELECT id AS `a.b`, 'x' AS c FROM range(10)").repartition(2)
    snapshot = store(frame, tmp_path, "area/model")
    assert Snapshot.read(snapshot.folder) == snapshot == newest_one(tmp_path, "area/model")
    assert [(column.name, column.type) for column in snapshot.columns] == [
        ("a.b", "bigint"),
        ("c", "string"),
    ]
    assert snapshot.fingerprint.rows == sum(file.rows for file in snapshot.files) == 10
    assert {file.name for file in snapshot.files} == {
        path.name for path in snapshot.folder.glob("*.parquet")
    }
    assert snapshot.size == sum(path.stat().st_size for path in snapshot.folder.glob("*.parquet"))


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
    assert newest_one(tmp_path, "model") == snapshot


def test_a_failed_write_leaves_no_folder(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents half a model that looks like a whole one, and garbage after each failure."""
    earlier = store(spark.range(1), tmp_path)
    frame = spark.range(0, 1000, numPartitions=2).select(
        F.when(F.col("id") < 900, F.col("id")).otherwise(F.raise_error(F.lit("boom"))).alias("id")
    )
    with pytest.raises(PySparkException, match="boom"):
        store(frame, tmp_path)
    assert list((tmp_path / "model").iterdir()) == [earlier.folder]
    assert newest_one(tmp_path, "model") == earlier


def test_a_snapshot_is_never_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents a write that changes, or in failing removes, what others already read."""
    snapshot = store(spark.range(3), tmp_path)
    with pytest.raises(PySparkException, match="ALREADY_EXISTS"):
        write_snapshot(spark.range(4), snapshot.folder, asset_key="model", run_id="run")
    assert is_committed(snapshot.folder)
    assert Snapshot.read(snapshot.folder) == snapshot
    assert spark.read.parquet(*snapshot.paths).count() == 3


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


def test_a_model_without_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents Parquet files that no reader opens."""
    with pytest.raises(UnstorableError, match=r'"model".*no columns'):
        store(spark.range(1).select(), tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_the_data_version_follows_the_content(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents skipped refreshes after a change, and needless ones after a reordering."""
    frame = spark.sql("SELECT id AS a, id * 2 AS b FROM range(20)")

    def version(changed: DataFrame) -> str:
        return store(changed, tmp_path).data_version

    first = version(frame)
    assert version(frame.orderBy(F.desc("a")).repartition(3)) == first
    assert version(frame.withColumnRenamed("a", "A")) != first
    assert version(frame.select("b", "a")) != first
    assert version(frame.selectExpr("CAST(a AS int) AS a", "b")) != first
    assert version(frame.selectExpr("b AS a", "a AS b")) != first
    assert version(frame.where("a <> 7")) != first
    assert version(frame.union(frame.where("a = 7"))) != first


def test_folders_are_named_after_models(tmp_path: Path) -> None:
    """Prevents models that share a folder, or that escape from the data directory."""
    keys = ["a/b", "a b", "a%20b", "a", "b", "ä.b", "[x]", "a\\b", "*"]
    folders = [new_folder(tmp_path, key).parent for key in keys]
    assert len(set(folders)) == len(keys)
    assert all(folder.is_relative_to(tmp_path) for folder in folders)
    assert all(set("[]*\\ ").isdisjoint(str(f.relative_to(tmp_path))) for f in folders)
