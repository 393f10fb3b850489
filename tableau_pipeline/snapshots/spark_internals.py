"""List everything that the pipeline uses of Spark outside of Spark's public interface.

`tableau_pipeline_tests/snapshots/test_spark_internals.py` tests each name separately. If an upgrade
breaks a name, the failed test shows the name.
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

# The key in a Parquet file's metadata under which Spark stores its own schema.
SCHEMA_KEY = b"org.apache.spark.sql.parquet.row.metadata"
# Spark's folder for rows whose partition is NULL (ExternalCatalogUtils.DEFAULT_PARTITION_NAME).
NULL_KEY = "__HIVE_DEFAULT_PARTITION__"
# The characters that Spark escapes in folder names (ExternalCatalogUtils.escapePathName).
ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^")
# These loggers log each AnalysisException a second time, as 25 KB of JSON.
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def silence_repetitions() -> None:
    """Make PySpark log each AnalysisException only once."""
    for name in _LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process by Spark's own script, if no JVM is running."""
    SparkContext._ensure_initialized(conf=SparkConf().setAll([*settings.items()]))


def end_jvm(session: SparkSession) -> None:
    """Stop a session, and wait until its JVM has ended regularly."""
    gateway = cast("JavaGateway", session.sparkContext._gateway)
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def ship_module(module: ModuleType) -> None:
    """Send the code of a module with the tasks, for executors that lack the module."""
    register_pickle_by_value(module)
