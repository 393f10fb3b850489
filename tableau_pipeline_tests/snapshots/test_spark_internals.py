"""One test for each private name of Spark that we use, to see what an upgrade breaks."""

import json
import logging
import pickle
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from py4j.java_gateway import JavaGateway
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tableau_pipeline.objects import arrow_files
from tableau_pipeline.snapshots import spark_internals as internals


def test_a_jvm_that_runs(spark: SparkSession):
    """Prevents: a session starts a second JVM although one JVM is already running."""
    gateway = spark.sparkContext._gateway
    internals.start_jvm({"spark.app.name": "other"})
    assert spark.sparkContext._gateway is gateway
    # `end_jvm` relies on the following properties.
    assert isinstance(gateway, JavaGateway)
    assert gateway.proc.poll() is None
    assert gateway.proc.stdin


def test_messages_are_logged_once(spark: SparkSession, caplog: pytest.LogCaptureFixture):
    """Prevents: a mistake in a query writes 25 KB of JSON to the log of a run."""
    internals.silence_repetitions()
    frame = spark.range(1)
    with pytest.raises(AnalysisException):
        frame.select("missing").collect()
    assert [record.name for record in caplog.records if "ContextLogger" in record.name] == []
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        assert logging.getLogger(name).level == logging.CRITICAL


@pytest.mark.slow
def test_modules_go_with_tasks():
    """Prevents: executors cannot import a module that is not installed there."""
    internals.ship_module(arrow_files)
    task = cloudpickle.dumps(arrow_files.open_store)
    assert b"from_url" in task
    assert callable(pickle.loads(task))


def test_names_of_folders(spark: SparkSession, tmp_path: Path):
    """Prevents: Spark names the folders of partitions differently, and readers miss the rows."""
    special = sorted(internals.ESCAPED - {"\x7f"})
    names = [*special, "plain", None]
    frame = spark.createDataFrame([(name, 1) for name in names], "name string, a int")
    frame.write.partitionBy("name").parquet(str(tmp_path / "rows"))
    folders = {path.name for path in (tmp_path / "rows").iterdir() if path.is_dir()}
    escaped = {f"name=%{ord(character):02X}" for character in special}
    assert folders == {*escaped, "name=plain", f"name={internals.NULL_KEY}"}


def test_schema_in_files(spark: SparkSession, tmp_path: Path):
    """Prevents: a model is read with other types than it was written with."""
    spark.range(1).coalesce(1).write.parquet(str(tmp_path / "rows"))
    (file,) = (tmp_path / "rows").glob("*.parquet")
    schema = (pq.read_metadata(file).metadata or {})[arrow_files.SPARK_SCHEMA]
    assert StructType.fromJson(json.loads(schema)).names == ["id"]
