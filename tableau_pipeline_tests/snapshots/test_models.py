"""Models: how the pipeline writes and reads their snapshots."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pyarrow as pa
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tableauhyperapi import TableName

from tableau_pipeline.core.snapshot import Fingerprint, Snapshot, Span
from tableau_pipeline.extracts.content import table_source
from tableau_pipeline.hyper import open_hyper
from tableau_pipeline.hyper.build import build_extract
from tableau_pipeline.hyper.parquet import TableSource
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.objects import arrow_files
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.storage import ObjectStorage, Storage
from tableau_pipeline.objects.stores import ObjectFolder
from tableau_pipeline.resources import SnapshotIOManager
from tableau_pipeline.snapshots.load import read_frame, read_hyper
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline.snapshots.write import (
    PartitionError,
    UnstorableError,
    write_partitions,
    write_rows,
    write_snapshot,
)
from tableau_pipeline_tests.snapshots.support import materialize, model, newest, reader, rows, store


def test_a_snapshot_says_what_it_holds(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents: a manifest does not match the files that it commits."""
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


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("emptied", ["no rows", "no partitions", "all filtered out"])
def test_an_empty_model_can_be_stored(emptied: str, spark: SparkSession, storage: Storage) -> None:
    """Prevents: a model without rows cannot be stored, or cannot be read."""
    frames: dict[str, DataFrame] = {
        "no rows": spark.createDataFrame([], "id bigint"),
        "no partitions": spark.createDataFrame(spark.sparkContext.emptyRDD(), "id bigint"),
        "all filtered out": spark.sql(f"SELECT {', '.join(ODD_NAMES)}").where("false"),
    }
    snapshots = SnapshotStore(storage)
    snapshot = write_snapshot(frames[emptied], snapshots, asset_key="model", run_id="test")
    assert snapshot.fingerprint == Fingerprint(rows=0, hash_sum=0)
    assert (snapshot.paths, snapshot.missing()) == ((), [])
    assert snapshots.newest("model") == snapshot
    found = read_frame(spark, snapshot)
    assert found.dtypes == frames[emptied].dtypes
    assert found.count() == 0


@pytest.mark.slow
@pytest.mark.few_variants(1)
def test_a_failed_write_leaves_nothing(spark: SparkSession, storage: Storage) -> None:
    """Prevents: a failed write looks like a whole model, or leaves files behind."""
    snapshots = SnapshotStore(storage)
    earlier = write_snapshot(spark.range(1), snapshots, asset_key="model", run_id="test")
    before = {entry.key for entry in storage.list("")}
    frame = spark.range(0, 1000, numPartitions=2).select(
        F.when(F.col("id") < 900, F.col("id")).otherwise(F.raise_error(F.lit("boom"))).alias("id")
    )
    with pytest.raises(Exception, match="boom"):
        write_snapshot(frame, snapshots, asset_key="model", run_id="test")
    assert {entry.key for entry in storage.list("")} == before
    assert snapshots.newest("model") == earlier


def test_an_interrupt_right_after_the_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a run that is stopped deletes the files of a version after the commit."""
    commit = SnapshotStore.commit

    def interrupted(*args: Any) -> Snapshot:
        commit(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(SnapshotStore, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store(spark.range(3), tmp_path)
    found = newest(tmp_path)
    assert found.missing() == []
    assert spark.read.parquet(*found.paths).count() == 3


@pytest.mark.parametrize(
    ("sql", "parts"),
    [
        ("SELECT 1 AS a, NULL AS `b c`", ["'b c'", "void", "cast it"]),
        ("SELECT make_interval(1) AS pause", ["'pause'", "interval", "cast it to a number"]),
        ("SELECT array(struct(make_interval(1))) AS pause", ["'pause'", "interval"]),
        ("SELECT time'12:00:00' AS at", ["'at'", "time", "cast it"]),
        # Spark writes such keys to JSON as memory addresses, so the hash would always differ.
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
    """Prevents: an unfit column shows as an error of Spark that does not name the column."""
    with pytest.raises(UnstorableError) as refusal:
        store(spark.sql(sql), tmp_path / "data", "area/model")
    for part in ['"area/model"', *parts]:
        assert part in str(refusal.value)
    assert not (tmp_path / "data").exists()


def test_a_column_without_a_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents: an empty column name shows as an error of Spark that does not name the model."""
    with pytest.raises(UnstorableError, match=r'"model" .*the name of column 2 is empty: name it'):
        store(spark.sql("SELECT 1, 2").toDF("id", ""), tmp_path / "data")


def test_a_model_without_columns_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents: a model without columns becomes Parquet files that no reader opens."""
    with pytest.raises(UnstorableError, match=r'"model".*no columns'):
        store(spark.range(1).select(), tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT id, 'x' AS `a b` FROM range(7)").repartition(2)


def stored_by(root: Path, assets: list[Any], key: str = "model") -> dg.AssetMaterialization:
    """Materialize a model, and return the materialization that Dagster has recorded."""
    instance = dg.DagsterInstance.ephemeral()
    assert materialize(root, assets, instance=instance).success
    event = instance.get_latest_materialization_event(dg.AssetKey.from_user_string(key))
    assert event is not None
    assert event.asset_materialization is not None
    return event.asset_materialization


def test_a_materialization_tells_what_was_stored(frame: DataFrame, tmp_path: Path) -> None:
    """Prevents: Dagster's catalog does not show the rows, columns and location of a model."""
    root = tmp_path / "with space"
    stored = stored_by(root, [model(frame, "area/model")], "area/model")
    snapshot = newest(root, "area/model")
    metadata = {key: entry.value for key, entry in stored.metadata.items()}
    assert metadata["dagster/row_count"] == 7
    place = Path(snapshot.paths[0]).parent
    assert metadata["dagster/uri"] == place.as_uri()
    assert metadata["version"] == snapshot.number == 1
    assert metadata["bytes"] == snapshot.size
    assert metadata["fingerprint"] == snapshot.data_version
    assert (stored.tags or {})["dagster/data_version"] == snapshot.data_version
    assert isinstance(metadata["seconds"], float)
    schema = metadata["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchema)
    assert [(column.name, column.type) for column in schema.columns] == [
        ("id", "bigint"),
        ("a b", "string"),
    ]


@pytest.mark.slow
def test_the_newest_snapshot_is_loaded(
    frame: DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    """Prevents: a reader gets the rows of an earlier run, or rows of several runs."""
    seen: list[Any] = []
    materialize(tmp_path, [model(frame)])
    result = materialize(tmp_path, [model(spark.range(2)), reader(seen, "model", DataFrame)])
    materialize(tmp_path, [dg.AssetSpec("model"), reader(seen, "model", Snapshot)])
    assert sorted(row.id for row in seen[0].collect()) == [0, 1]
    assert seen[1] == newest(tmp_path)
    assert seen[1].run_id == result.run_id


def test_a_notebook_loads_the_newest_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents: a notebook cannot load a model, because a notebook is not a run."""
    manager = SnapshotIOManager(root=str(tmp_path), spark=LazyPySparkResource(spark_config={}))
    definitions = dg.Definitions(assets=[model(spark.range(2))], resources={"io_manager": manager})
    store(spark.range(9), tmp_path)
    assert definitions.load_asset_value("model", python_type=Snapshot) == newest(tmp_path)


def test_a_model_without_a_snapshot_says_so(frame: DataFrame, tmp_path: Path) -> None:
    """Prevents: a model that has no snapshot yet shows as a stack trace."""
    assets = [model(frame, "area/model"), reader([], "area/model", DataFrame)]
    with pytest.raises(dg.Failure) as failure:
        materialize(tmp_path, assets, select="reader")
    assert '"area/model"' in str(failure.value.description)
    assert str(tmp_path) in str(failure.value.description)
    assert "materialize it first" in str(failure.value.description)


@pytest.mark.few_variants(1)
@pytest.mark.parametrize("value", [7, [1], None], ids=repr)
def test_what_is_not_a_frame_is_refused(value: Any, spark: SparkSession, tmp_path: Path) -> None:
    """Prevents: a model that returns no frame counts as fresh, or fails with an unclear error."""
    days = dg.StaticPartitionsDefinition(["mon"])

    @dg.asset
    def wrong():
        return value

    @dg.asset(partitions_def=days, metadata={"partition_expr": "day"})
    def by_day():
        return dg.Output(value)

    @dg.multi_asset(outs={"first": dg.AssetOut(), "second": dg.AssetOut()})
    def several():
        yield dg.Output(spark.range(1), "first")
        yield dg.Output(value, "second")

    returned = "nothing" if value is None else type(value).__name__
    for asset, name, keys in (
        (wrong, "wrong", {}),
        (by_day, "by_day", {"partition_key": "mon"}),
        (several, "second", {}),
    ):
        with pytest.raises(TypeError, match=rf'"{name}" returned {returned}: return a'):
            materialize(tmp_path, [asset], **keys)
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


@pytest.mark.slow
def test_an_asset_without_an_output_stores_nothing(tmp_path: Path) -> None:
    """Prevents: assets that store their results elsewhere cannot use our IO manager."""

    @dg.asset
    def elsewhere() -> None:
        return None

    @dg.asset
    def described():
        return dg.MaterializeResult(metadata={"rows": 1})

    assert materialize(tmp_path, [elsewhere, described]).success
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a b [x] 50% %20", "{a,b}*?", "it's#1:é", "year=2024", "a\\b"])
def test_the_data_directory_may_have_any_name(
    name: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Prevents: Spark takes a path for a pattern, an encoded URL or a partition."""
    seen: list[DataFrame] = []
    rows = spark.range(6).repartition(2)
    materialize(tmp_path / name, [model(rows), reader(seen, "model", DataFrame)])
    assert seen[0].columns == ["id"]
    assert sorted(row.id for row in seen[0].collect()) == list(range(6))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    snapshot = newest(tmp_path / name)
    table = TableSource("Extract", snapshot.columns, snapshot.paths)
    assert build_extract(hyper_process(), tmp_path / "x.hyper", tables=[table]).rows == {
        "Extract": 6
    }


@pytest.mark.slow
def test_the_data_directory_may_be_relative(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: Spark takes the first folder of a relative path for the name of a host."""
    monkeypatch.chdir(tmp_path)
    seen: list[DataFrame] = []
    materialize("some/data", [model(spark.range(3)), reader(seen, "model", DataFrame)])
    assert seen[0].count() == 3
    assert (tmp_path / "some" / "data").is_dir()


TYPES = [
    "CAST(1 AS tinyint)",
    "CAST('NaN' AS float)",
    "1.5BD",
    "X'00ff'",
    "date'0001-01-01'",
    "timestamp'0001-01-01 00:00:00.000001'",
    "timestamp_ntz'9999-12-31 23:59:59.999999'",
    "interval '1-2' year to month",
    "interval '1 2:03:04.5' day to second",
    "'a' COLLATE utf8_lcase",
    "array('a' COLLATE unicode_ci, NULL)",
    "map('k', array(1, NULL))",
    "parse_json('{\"a\": [1, null]}')",
]
ODD_NAMES = [
    "named_struct('a b', 1, 'c.d', named_struct('e`f', 2, 'select', 3))",
    "array(named_struct('x:y', 1))",
    "map('k', named_struct('a,b<c>', 1))",
]


def texts(frame: DataFrame) -> list[str]:
    """Return the rows as text, because Python lacks some of Spark's types."""
    named = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    texts = named.select(*(named[name].cast("string") for name in named.columns))
    return sorted(str(row) for row in texts.collect())


TABLE = TableName("Extract", "Extract")


@pytest.mark.slow
def test_an_extract_as_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents: a model that reads an extract gets other values or other types."""
    rows = {
        "id": pa.array([1, 2], pa.int64()),
        "small": pa.array([1, None], pa.int16()),
        "text": pa.array(["航 \0", None]),
        "exact": pa.array([Decimal("9" * 36 + ".25"), None], pa.decimal128(38, 2)),
        "day": pa.array([date(1582, 10, 10), None]),
        "wall": pa.array([datetime(1, 1, 1, 2, 30), None], pa.timestamp("us")),
        "instant": pa.array([datetime(2024, 1, 1), None], pa.timestamp("us", "UTC")),
        "ratio": pa.array([float("inf"), None], pa.float64()),
        "raw": pa.array([b"\x00\xff", None], pa.binary()),
        "flag": pa.array([True, None]),
    }
    path = tmp_path / "x.hyper"
    with open_hyper(path, "w", version=3) as file:
        file.create(TABLE, pa.table(rows))
    frame = read_hyper(spark, path, TABLE, folder=tmp_path / "a [folder] {of} *?")
    assert [kind for _, kind in frame.dtypes] == [
        *("bigint", "smallint", "string", "decimal(38,2)", "date"),
        *("timestamp_ntz", "timestamp", "double", "binary", "boolean"),
    ]
    found = frame.orderBy("id").toArrow().to_pydict()
    assert found == pa.table(rows).to_pydict()
    query = f'SELECT COUNT(*) AS "n" FROM {TABLE}'
    assert read_hyper(spark, path, query, folder=tmp_path).collect() == [(2,)]


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
    """Return an empty store that uses the library for object stores, but keeps objects on disk."""
    root = tmp_path / "objects"
    root.mkdir()
    return SnapshotStore(ObjectStorage(root.as_uri(), LocalCopies(tmp_path / "copies", 10**9)))


def written(frame: DataFrame, store: SnapshotStore) -> Snapshot:
    return write_snapshot(frame, store, asset_key="area/model", run_id="test")


def by_day(frame: DataFrame, store: SnapshotStore) -> Snapshot:
    return write_partitions(
        frame, store, expression="day", partitions=DAYS, asset_key="model", run_id="test"
    )


@pytest.mark.slow
def test_every_type_survives(spark: SparkSession, objects: SnapshotStore, tmp_path: Path):
    """Prevents: a model has other values, types or fingerprints in an object store."""
    # Leave out intervals of years and months, which Arrow does not have in Python.
    values = [value for value in [*TYPES, *ODD_NAMES] if "year to month" not in value]
    columns = [f"{value} AS `odd ``name, x.y {number}`" for number, value in enumerate(values)]
    nulls = ["NULL"] * len(values)
    frame = spark.sql(f"SELECT {', '.join(columns)} UNION ALL SELECT {', '.join(nulls)}")
    stored = written(frame, objects)
    on_disk = written(frame, SnapshotStore(tmp_path / "disk"))
    assert stored.data_version == on_disk.data_version
    found, from_disk = read_frame(spark, stored), read_frame(spark, on_disk)
    assert found.schema == from_disk.schema
    assert from_disk.dtypes == frame.dtypes
    assert texts(found) == texts(from_disk) == texts(frame)


@pytest.mark.slow
def test_hyperd_reads_what_was_stored(spark: SparkSession, objects: SnapshotStore, tmp_path: Path):
    """Prevents: hyperd cannot read stored objects, or the pipeline fetches objects too early."""
    frame = spark.range(10_000).repartition(3).withColumn("text", F.concat(F.lit("é"), "id"))
    stored = written(frame, objects)
    assert len(stored.files) == 3
    table = table_source("Extract", stored)
    assert not (tmp_path / "copies").exists()
    built = build_extract(hyper_process(), tmp_path / "x.hyper", tables=[table])
    assert built.rows == {"Extract": 10_000}
    assert objects.newest("area/model") == stored


@pytest.mark.slow
def test_rows_that_fill_their_last_row_group(
    spark: SparkSession, objects: SnapshotStore, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a write fails if the rows of a file end exactly with a row group."""
    # Spark sends this value to the workers, together with the code of the module.
    monkeypatch.setattr(arrow_files, "_ROW_GROUP", 1)
    stored = written(spark.range(25_000, numPartitions=1), objects)
    assert read_frame(spark, stored).count() == 25_000


def test_objects_that_nobody_sees_are_no_version(
    spark: SparkSession, objects: SnapshotStore, tmp_path: Path
):
    """Prevents: executors write to another store, and a version without files is committed."""
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
    with pytest.raises(RuntimeError, match="this process does not find that object"):
        write_rows(rows, astray, "@data/x", asset_key="model")


@pytest.mark.slow
def test_partitions_are_stored_apart(spark: SparkSession, objects: SnapshotStore):
    """Prevents: rows are stored in the files of another partition, or are lost."""
    day = "date'2024-03-01' + CAST(id % 2 AS int)"
    frame = spark.range(1_000).repartition(4).withColumn("day", F.expr(day))
    stored = by_day(frame, objects)
    assert rows(stored) == {"2024-03-01": 500, "2024-03-02": 500, "2024-03-03": 0}
    for key, part in stored.by_partition().items():
        assert Counter(str(row.day) for row in read_frame(spark, part).collect()) == (
            {key: 500} if part.row_count else {}
        )


@pytest.mark.slow
def test_a_stray_row_is_refused(spark: SparkSession, objects: SnapshotStore):
    """Prevents: rows outside of all partitions are dropped without an error."""
    frame = spark.range(3).withColumn("day", F.expr("date'2024-03-01' + CAST(id * 10 AS int)"))
    with pytest.raises(PartitionError, match="2 rows lie outside"):
        by_day(frame, objects)
    assert not [*objects.storage.list("")]


def test_missing_objects_are_named(spark: SparkSession, objects: SnapshotStore):
    """Prevents: an update builds on files that an administrator has deleted from the bucket."""
    stored = written(spark.range(10).repartition(2), objects)
    assert stored.missing() == []
    lost = stored.files[0].name
    assert objects.storage.delete(f"area/model/{lost}")
    assert stored.missing() == [stored.folder.uri(lost)]


@pytest.mark.slow
def test_partitions_without_rows(spark: SparkSession, objects: SnapshotStore):
    """Prevents: a model cannot be read until one of its partitions has rows."""
    frame = spark.sql("SELECT date'2024-03-01' AS day, named_struct('x, y', 1) AS `a b` LIMIT 0")
    stored = by_day(frame, objects)
    assert rows(stored) == dict.fromkeys(DAYS, 0)
    assert read_frame(spark, stored).schema["a b"].dataType.simpleString() == "struct<x, y:int>"
    assert read_frame(spark, stored).count() == 0
