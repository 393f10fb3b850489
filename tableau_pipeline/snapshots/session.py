"""The Spark session of the pipeline: in UTC, with few log messages, local access only."""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

_LOG_CONFIG = Path(__file__).parents[1] / "log4j2.properties"

_SESSION = {
    # Snapshots, cutoffs and Tableau's datetimes without a zone are all in UTC.
    "spark.sql.session.timeZone": "UTC",
    # Spark's default is INT96, whose order other Parquet readers do not know.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Wide tables are common here: avoid the warning about truncated plans.
    "spark.sql.debug.maxToStringFields": "1000",
}

_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

_NOTHING_ELSE: Mapping[str, str] = MappingProxyType({})

JAVA_REMEDY = (
    "Spark could not start its Java process: install Java 17 or newer (Debian, Ubuntu: apt-get "
    "install openjdk-17-jre-headless; macOS: brew install openjdk@17), or point JAVA_HOME at one."
)


def spark_session(
    *,
    master: str = "local[*]",
    remote: str | None = None,
    driver_memory: str = "2g",
    config: Mapping[str, str] = _NOTHING_ELSE,
) -> SparkSession:
    """Return the Spark session of this process; start it if there is none.

    Args:
        master: as Spark's `--master`; ignored when `remote` is set.
        remote: a Spark Connect URL (`sc://host:15002`), or None to start a local JVM.
        driver_memory: heap of that JVM; only the first session of a process uses it.
        config: further Spark settings, which override the ones set here.

    Raises:
        RuntimeError: Java is missing or does not start.
    """
    # Otherwise each AnalysisException is logged a second time, as 25 KB of JSON.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    settings = dict(_SESSION)
    if remote:
        settings["spark.remote"] = remote
    else:
        settings |= {
            "spark.master": master,
            "spark.driver.memory": driver_memory,
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        if master.startswith("local"):
            settings |= _LOCAL
            # Spark would take the first `python3` of the PATH, which may lack all that a model
            # imports, unless the virtual environment is activated.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for key, value in {**settings, **config}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise RuntimeError(JAVA_REMEDY) from error
        raise
