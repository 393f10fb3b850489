"""The Spark session of the pipeline: in UTC, as the user has configured Spark, or else as we do."""

import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.objects import arrow_files, errors
from tableau_pipeline.objects.stores import StoreError
from tableau_pipeline.outcome import Code

# Spark starts without the archive of classes, too: a warning would tell a user nothing to do.
NO_WARNINGS = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def class_archive() -> Path:
    """Return where this installation of Python has the archive of Spark's classes, if it has one.

    Without it, Java reads and verifies some ten thousand classes each time that Spark starts. This
    is Java's application class-data sharing (JEP 350).
    """
    return Path(sys.prefix, "share", "tableau_pipeline", "spark.jsa")


# Whatever the user has set, or the same rows would be stored as different ones.
_ALWAYS = {
    # Snapshots, cutoffs and Tableau's datetimes without a zone are all in UTC.
    "spark.sql.session.timeZone": "UTC",
    # Spark's default is INT96, whose order other Parquet readers do not know.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

_LOG_CONFIG = Path(__file__).parents[1] / "log4j2.properties"

# Ours, where the user has set nothing.
_PROPERTIES = {
    "log4j2.configurationFile": _LOG_CONFIG.as_uri(),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Wide tables are common here: avoid the warning about truncated plans.
    "spark.sql.debug.maxToStringFields": "1000",
}
_DRIVER_MEMORY = "2g"
_LOOPBACK = "127.0.0.1"

JAVA_REMEDY = (
    "Spark could not start its Java process: install Java 17 or newer (Debian, Ubuntu: apt-get "
    "install openjdk-17-jre-headless; macOS: brew install openjdk@17), or point JAVA_HOME at one. "
    "If Java is there, Spark's own message stands above: correct what you set for Spark."
)


def spark_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    driver_memory: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the Spark session of this process; start it if there is none.

    What is not given here is as the user's `spark-defaults.conf` says, and only then as we think
    best. The session is in UTC and writes timestamps in microseconds, whatever is set.

    Args:
        master: as Spark's `--master`; ignored when `remote` is set. Spark's default is `local[*]`.
        remote: a Spark Connect URL (`sc://host:15002`), by default that in SPARK_REMOTE; without
            one, a local JVM starts.
        driver_memory: heap of that JVM, by default 2g; only the first session of a process uses it.
        config: further Spark settings, which win over all others but these two.

    Raises:
        RefusedError: Java is missing or does not start.
    """
    # Otherwise each AnalysisException is logged a second time, as 25 KB of JSON.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    remote = remote or os.environ.get("SPARK_REMOTE")
    given = {"spark.master": master, "spark.driver.memory": driver_memory}
    given = {"spark.remote": remote} if remote else given
    given = {key: value for key, value in given.items() if value}
    settings = {**given, **(config or {}), **_ALWAYS}
    try:
        if not remote:
            # Only Spark's own start script finds and reads all that the user has configured, and
            # only the process that it starts, unless it runs, can tell.
            with _environment(_for_java()):
                SparkContext._ensure_initialized(conf=SparkConf().setAll([*settings.items()]))
            settings |= _local_access(SparkConf().setAll([*settings.items()]))
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            # Spark's traceback tells of its sockets, not of Java.
            raise RefusedError(JAVA_REMEDY, code=Code.NOT_INSTALLED) from None
        raise


def runs_here(session: object) -> bool:
    """Whether all tasks of a session run on this host."""
    # The session of a Spark Connect server is of another class: that server may be anywhere.
    master = session.sparkContext.master if isinstance(session, SparkSession) else None
    return (master or "").startswith("local")


def _for_java() -> dict[str, str]:
    """Return what Spark reads where neither its command line nor `spark-defaults.conf` tells."""
    # Of two values of a property, Java takes the later one.
    options = [f"-D{key}={value}" for key, value in _PROPERTIES.items()]
    # Java itself ignores an archive that another Java or another Spark has made.
    if class_archive().exists():
        options += [f'-XX:SharedArchiveFile="{class_archive()}"', *NO_WARNINGS]
    variables = {
        "SPARK_SUBMIT_OPTS": f"{' '.join(options)} {os.environ.get('SPARK_SUBMIT_OPTS', '')}",
        "SPARK_DRIVER_MEMORY": os.environ.get("SPARK_DRIVER_MEMORY") or _DRIVER_MEMORY,
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON") or sys.executable,
    }
    if "SPARK_LOCAL_IP" not in os.environ and not _host_name_is_known():
        variables["SPARK_LOCAL_IP"] = _LOOPBACK
    return variables


def _host_name_is_known() -> bool:
    """Whether this host's name stands for an address of its own; otherwise Spark would stop."""
    try:
        family, _, _, _, address = socket.getaddrinfo(socket.gethostname(), 0)[0]
        with socket.socket(family) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


@contextmanager
def _environment(variables: Mapping[str, str]) -> Generator[None]:
    """Set variables for a process that is started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _local_access(conf: SparkConf) -> dict[str, str]:
    """Let nothing but this host connect to a Spark that runs on this host only."""
    if not (conf.get("spark.master") or "").startswith("local"):
        return {}
    # Spark would take the first `python3` of the PATH, which may lack all that a model imports,
    # unless the virtual environment is activated.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    keys = ("spark.driver.host", "spark.driver.bindAddress")
    # The second one's default is the first: whoever sets either has decided on both.
    return {} if any(map(conf.contains, keys)) else dict.fromkeys(keys, _LOOPBACK)


# Tasks on Arrow batches, by which Spark's executors read and write objects.

# The last line of the traceback of a task.
_TASK_ERROR = re.compile(rf"\b{errors.ObjectStoreTaskError.__name__}: (.+)")
_Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def plain_names(count: int) -> list[str]:
    """Return names for the columns that a task gets or returns."""
    # Spark parses them: a name with a dot or a backtick stops it.
    return [f"c{number}" for number in range(count)]


def plainly_named(frame: DataFrame) -> DataFrame:
    """Return a frame with columns that a task can get."""
    return frame.toDF(*plain_names(len(frame.columns)))


def ship_by_value(task: _Task) -> _Task:
    """Return a task of `arrow_files` whose code goes to the executors together with it."""
    # Otherwise executors would import it, and so would need this package.
    register_pickle_by_value(arrow_files)
    register_pickle_by_value(errors)
    return task


@contextmanager
def task_errors() -> Generator[None]:
    """Turn an error of a task, and Spark's error about it, into ours if the store has failed.

    Raises:
        StoreError: names the URL, the cause and the remedy.
    """
    try:
        yield
    except errors.ObjectStoreTaskError as error:
        raise StoreError(str(error)) from None
    except (PySparkException, Py4JJavaError) as error:
        if found := _TASK_ERROR.search(str(error)):
            raise StoreError(f"In a task of Spark: {found[1]}") from None
        raise
