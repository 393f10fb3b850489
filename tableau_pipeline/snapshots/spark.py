"""The Spark session of the pipeline: the user's settings, our defaults, and always UTC."""

import os
import re
import socket
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.objects import arrow_files, errors
from tableau_pipeline.objects.stores import StoreError
from tableau_pipeline.outcome import Code
from tableau_pipeline.snapshots.spark_internals import ship_module, silence_repetitions, start_jvm

# Spark also starts without the archive of classes, so a warning about it would not help a user.
NO_WARNINGS = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def class_archive() -> Path:
    """Return the path of the archive of Spark's classes for this installation; it need not exist.

    Without it, Java reads and verifies some ten thousand classes each time that Spark starts. This
    is Java's application class-data sharing (JEP 350).
    """
    return Path(sys.prefix, "share", "tableau_pipeline", "spark.jsa")


# These win over the user's settings; otherwise equal rows could be stored as different ones.
_FIXED_SETTINGS = {
    # Snapshots, cutoffs and Tableau's datetimes without a zone are all in UTC.
    "spark.sql.session.timeZone": "UTC",
    # Spark's default is INT96, whose order other Parquet readers do not know.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

_LOG_CONFIG = Path(__file__).parents[1] / "log4j2.properties"

# Our defaults, where the user has set nothing.
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

    Settings that are not given here come from the user's `spark-defaults.conf`, and then from our
    defaults. The session always uses UTC and writes timestamps in microseconds.

    Args:
        master: as Spark's `--master`; ignored when `remote` is set. Spark's default is `local[*]`.
        remote: a Spark Connect URL (`sc://host:15002`), by default that in SPARK_REMOTE; without
            one, a local JVM starts.
        driver_memory: heap of that JVM, by default 2g; only the first session of a process uses it.
        config: further Spark settings; they win over all others but the time zone and microseconds.

    Raises:
        RefusedError: Java is missing or does not start.
    """
    silence_repetitions()
    remote = remote or os.environ.get("SPARK_REMOTE")
    arguments = {"spark.master": master, "spark.driver.memory": driver_memory}
    arguments = {"spark.remote": remote} if remote else arguments
    arguments = {key: value for key, value in arguments.items() if value}
    settings = {**arguments, **(config or {}), **_FIXED_SETTINGS}
    try:
        if not remote:
            # Only Spark's own start script finds and reads the user's whole configuration. So start
            # the process, unless it is running, before the configuration is read.
            with _environment_variables(_java_variables()):
                start_jvm(settings)
            settings |= _local_access(SparkConf().setAll([*settings.items()]))
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            # Spark's traceback is about its sockets, not about Java.
            raise RefusedError(JAVA_REMEDY, code=Code.NOT_INSTALLED) from None
        raise


def runs_here(session: object) -> bool:
    """Whether all tasks of a session run on this host."""
    # A Spark Connect session has another class; its server may be on any host.
    master = session.sparkContext.master if isinstance(session, SparkSession) else None
    return (master or "").startswith("local")


def _java_variables() -> dict[str, str]:
    """Return variables for what the command line and `spark-defaults.conf` of Spark do not set."""
    # If a property has two values, Java takes the later one.
    options = [f"-D{key}={value}" for key, value in _PROPERTIES.items()]
    # Java ignores an archive that another Java or another Spark has made.
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
    """Whether the host name resolves to an address of this host; otherwise Spark would stop."""
    try:
        family, _, _, _, address = socket.getaddrinfo(socket.gethostname(), 0)[0]
        with socket.socket(family) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


@contextmanager
def _environment_variables(variables: Mapping[str, str]) -> Generator[None]:
    """Set environment variables for processes that are started in the block."""
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
    """Return settings by which only this host can connect to a local Spark."""
    if not (conf.get("spark.master") or "").startswith("local"):
        return {}
    # By default, Spark takes the first `python3` in the PATH. Unless the virtual environment is
    # activated, that may lack the packages that a model imports.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    keys = ("spark.driver.host", "spark.driver.bindAddress")
    # The default of the second is the first, so a user who sets either has decided on both.
    return {} if any(map(conf.contains, keys)) else dict.fromkeys(keys, _LOOPBACK)


# Tasks on Arrow batches, with which Spark's executors read and write objects.

# The last line in the traceback of a failed task.
_TASK_ERROR = re.compile(rf"\b{errors.ObjectStoreTaskError.__name__}: (.+)")
_Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def plain_names(count: int) -> list[str]:
    """Return plain names for the columns that a task gets or returns."""
    # Spark parses these names, and fails at dots and backticks.
    return [f"c{number}" for number in range(count)]


def plainly_named(frame: DataFrame) -> DataFrame:
    """Return the frame with plain column names, as a task needs them."""
    return frame.toDF(*plain_names(len(frame.columns)))


def ship_by_value(task: _Task) -> _Task:
    """Register the code of a task of `arrow_files` to be sent to the executors with the task."""
    # Otherwise the executors would import it, and would need this package.
    ship_module(arrow_files)
    ship_module(errors)
    return task


@contextmanager
def task_errors() -> Generator[None]:
    """Turn an error of a task, or Spark's error about it, into ours if the object store failed.

    Raises:
        StoreError: names the URL, the cause and the remedy.
    """
    try:
        yield
    except errors.ObjectStoreTaskError as error:
        raise StoreError(str(error)) from None
    except (PySparkException, Py4JJavaError) as error:
        if line := _TASK_ERROR.search(str(error)):
            raise StoreError(f"In a task of Spark: {line[1]}") from None
        raise
