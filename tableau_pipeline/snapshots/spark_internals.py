"""Everything that the pipeline uses of Spark beyond its public interface.

`tableau_pipeline_tests/snapshots/test_spark_internals.py` tests each name separately, so that after
an upgrade the failed test shows which name broke.
"""

import logging
from collections.abc import Mapping
from types import ModuleType
from typing import cast

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

# Where Spark stores its own schema in a Parquet file.
SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"
# Spark's folder for rows whose partition is NULL (ExternalCatalogUtils.DEFAULT_PARTITION_NAME).
NULL_KEY = "__HIVE_DEFAULT_PARTITION__"
# The characters that Spark escapes in folder names (ExternalCatalogUtils.escapePathName).
ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^")
# These loggers log each AnalysisException a second time, as 25 KB of JSON.
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def silence_repetitions() -> None:
    """Let PySpark log an AnalysisException only once."""
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process by Spark's own script, unless it is running."""
    SparkContext._ensure_initialized(conf=SparkConf().setAll([*settings.items()]))


def end_jvm(session: SparkSession) -> None:
    """Stop a session, and wait until its JVM has ended regularly."""
    gateway = cast("JavaGateway", session.sparkContext._gateway)
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def ship_module(module: ModuleType) -> None:
    """Send a module's code with the tasks, to executors on which it is not installed."""
    register_pickle_by_value(module)
