"""Start the Spark session of the pipeline, with the user's settings, our defaults, and UTC."""

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

# Switch off Java's warnings about the archive of classes: without the archive, Spark only starts
# more slowly.
NO_WARNINGS = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def class_archive() -> Path:
    """Return the path of this installation's archive of Spark's classes; it may not exist.

    Without the archive, Java reads and verifies about ten thousand classes at each start of Spark.
    The archive is for Java's application class-data sharing (JEP 350).
    """
    return Path(sys.prefix, "share", "tableau_pipeline", "spark.jsa")


# These settings override the user's settings. Otherwise, equal rows could be stored with different
# values.
_FIXED_SETTINGS = {
    # Snapshots, the cutoffs of `retain` and Tableau's datetimes without a zone are all in UTC.
    "spark.sql.session.timeZone": "UTC",
    # Avoid Spark's default, INT96, because other Parquet readers cannot order its values.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

_LOG_CONFIG = Path(__file__).parents[1] / "log4j2.properties"

# Our defaults for properties that the user has not set.
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
    "If Java is installed, read Spark's own message above, and correct your Spark settings."
)


def spark_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    driver_memory: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the Spark session of this process; start it if there is none.

    A setting that is not an argument comes from the user's `spark-defaults.conf`, or else from our
    defaults. The session always uses UTC, and writes timestamps in microseconds.

    Args:
        master: Spark's `--master`; ignored if a remote URL is set. Spark's default is `local[*]`.
        remote: a Spark Connect URL (`sc://host:15002`), by default the URL in SPARK_REMOTE. Without
            a URL, a local JVM starts.
        driver_memory: the heap of the local JVM, by default 2g. Only the first session of a process
            uses it.
        config: further Spark settings, which override all other settings. But they cannot change
            the time zone or the unit of written timestamps.

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
            # Start the JVM before reading the configuration, because only Spark's own start script
            # finds and reads all settings of the user.
            with _environment_variables(_java_variables()):
                start_jvm(settings)
            settings |= _local_access(SparkConf().setAll([*settings.items()]))
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            # Hide Spark's traceback, which is about sockets, and not about Java.
            raise RefusedError(JAVA_REMEDY, code=Code.NOT_INSTALLED) from None
        raise


def runs_here(session: object) -> bool:
    """Whether all tasks of a session run on this host."""
    # A Spark Connect session is of another class, and its server may be on any host.
    master = session.sparkContext.master if isinstance(session, SparkSession) else None
    return (master or "").startswith("local")


def _java_variables() -> dict[str, str]:
    """Return environment variables with our defaults; the user's Spark settings override them."""
    # Put the user's options last, because Java uses the last value of a property.
    options = [f"-D{key}={value}" for key, value in _PROPERTIES.items()]
    # If the archive is from another Java or Spark, Java ignores the archive.
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
    """Whether the host name resolves to an address of this host, which Spark needs to start."""
    try:
        family, _, _, _, address = socket.getaddrinfo(socket.gethostname(), 0)[0]
        with socket.socket(family) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


@contextmanager
def _environment_variables(variables: Mapping[str, str]) -> Generator[None]:
    """Set environment variables during the block, for processes that start in the block."""
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
    """Return settings that let only this host connect to a local Spark.

    This function also sets this Python as the Python of Spark's tasks.
    """
    if not (conf.get("spark.master") or "").startswith("local"):
        return {}
    # Use this Python in tasks. By default, Spark uses the first `python3` in the PATH. If the
    # virtual environment is not activated, that Python may lack packages that a model imports.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    keys = ("spark.driver.host", "spark.driver.bindAddress")
    # By default, `bindAddress` equals `host`. So if the user has set one of them, set neither.
    return {} if any(map(conf.contains, keys)) else dict.fromkeys(keys, _LOOPBACK)


# Helpers for tasks on Arrow batches, in which Spark's executors read and write objects.

# The last line in the traceback of a failed task.
_TASK_ERROR = re.compile(rf"\b{errors.ObjectStoreTaskError.__name__}: (.+)")
_Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def plain_names(count: int) -> list[str]:
    """Return plain names for the input or output columns of a task."""
    # Do not use the column names of models: Spark parses names, and fails at dots and backticks.
    return [f"c{number}" for number in range(count)]


def plainly_named(frame: DataFrame) -> DataFrame:
    """Return the frame with plain column names, which a task needs."""
    return frame.toDF(*plain_names(len(frame.columns)))


def ship_by_value(task: _Task) -> _Task:
    """Let Spark send the code of `arrow_files`, which defines the task, to the executors.

    Otherwise, the executors would import the code from this package, which they may lack.
    """
    ship_module(arrow_files)
    ship_module(errors)
    return task


@contextmanager
def task_errors() -> Generator[None]:
    """Turn an error into a StoreError if the object store failed, in a task or in this process.

    Raises:
        StoreError: the object store failed. The error names the URL, the cause and the remedy.
    """
    try:
        yield
    except errors.ObjectStoreTaskError as error:
        raise StoreError(str(error)) from None
    except (PySparkException, Py4JJavaError) as error:
        if line := _TASK_ERROR.search(str(error)):
            raise StoreError(f"In a task of Spark: {line[1]}") from None
        raise
