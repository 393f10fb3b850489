"""The Spark sessions that compute models."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from socket import create_connection
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.dagster_servers import free_port, running, until
from tableau_pipeline_tests.deployment.object_stores import BUCKET, S3Server
from tableau_pipeline_tests.snapshots.support import store

USERS = {
    "spark.master": "local[1]",
    "spark.driver.memory": "700m",
    "spark.driver.host": "localhost",
    "spark.driver.extraJavaOptions": "-Dmine=yes",
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.ui.showConsoleProgress": "true",
    "spark.sql.debug.maxToStringFields": "7",
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.sql.parquet.outputTimestampType": "INT96",
}
SUBMIT = "--conf spark.driver.maxResultSize=9m pyspark-shell"
OURS = {
    "spark.master": "local[*]",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.debug.maxToStringFields": "1000",
}
ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
# The environment variables in which Spark looks for settings.
VARIABLES = (
    "MASTER", "PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS",
    "SPARK_DRIVER_MEMORY", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS",
)  # fmt: skip
ASK = """
import json, os, socket, sys
from tableau_pipeline.snapshots.spark import spark_session
given, host = json.loads(sys.argv[1])
if host:
    socket.sethostname(host)
before = dict(os.environ)
spark = spark_session(**given)
java = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
answer = {
    "settings": dict(spark.sparkContext.getConf().getAll()),
    "session": {key: spark.conf.get(key) for key in sys.argv[2:]},
    "java": list(java.getInputArguments()),
    "environment": sorted(dict(os.environ.items() - before.items())),
    "rows": spark.range(3).count(),
}
print("\\n" + json.dumps(answer))
"""


def ask(
    users: Mapping[str, str], folder: Path, *unshare: str, host: str = "", **given: Any
) -> dict[str, Any]:
    """Start a session in a new process, and return its properties.

    Args:
        users: the settings in `spark-defaults.conf`.
        unshare: a prefix for the command of the process.
        host: the new host name of the process, if any.
        given: the arguments of `spark_session`.
    """
    lines = [f"{key} {value}" for key, value in users.items()]
    (folder / "spark-defaults.conf").write_text("\n".join(lines))
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [*unshare, sys.executable, "-c", ASK, json.dumps([given, host]), *ALWAYS],
        env={**kept, "SPARK_CONF_DIR": str(folder), "PYSPARK_SUBMIT_ARGS": SUBMIT},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert answer["rows"] == 3
    assert answer["session"] == ALWAYS
    # Later processes would take any other variable for a setting of the user.
    assert set(answer["environment"]) & set(VARIABLES) == {"PYSPARK_PYTHON"}
    return answer


@pytest.mark.slow
def test_python_functions_run_in_this_interpreter(spark: SparkSession):
    """Prevents: the functions of a model run in another Python than the model."""
    (row,) = spark.range(1).select(udf(lambda: sys.prefix)()).collect()
    assert row[0] == sys.prefix


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ({}, {}),
        (
            {
                "master": "local[2]",
                "driver_memory": "600m",
                "config": {"spark.ui.enabled": "false", "spark.sql.session.timeZone": "Asia/Tokyo"},
            },
            {
                "spark.master": "local[2]",
                "spark.driver.memory": "600m",
                "spark.ui.enabled": "false",
            },
        ),
    ],
    ids=["nothing", "arguments"],
)
def test_settings_of_the_user_win(arguments: dict[str, Any], given: dict[str, str], tmp_path: Path):
    """Prevents: a session reads the user's spark-defaults.conf, but overrides its settings."""
    answer = ask(USERS, tmp_path, **arguments)
    wanted = {**USERS, "spark.driver.maxResultSize": "9m", **given, **ALWAYS}
    # Spark puts its own options before the option of the user, so look for it in Java's arguments.
    option = wanted.pop("spark.driver.extraJavaOptions")
    found = answer["settings"]
    assert {key: found.get(key) for key in wanted} == wanted
    assert "spark.driver.bindAddress" not in found
    assert {option, f"-Xmx{wanted['spark.driver.memory']}"} <= set(answer["java"])


@pytest.mark.long
def test_settings_without_a_user(tmp_path: Path):
    """Prevents: other hosts can reach the driver, or Spark fills the log of each run."""
    answer = ask({}, tmp_path)
    assert {key: answer["settings"].get(key) for key in OURS} == OURS
    assert "-Xmx2g" in answer["java"]
    (log,) = (each for each in answer["java"] if each.startswith("-Dlog4j2.configurationFile="))
    assert log.endswith("/tableau_pipeline/log4j2.properties")


@pytest.mark.long
def test_a_host_whose_name_nobody_knows(tmp_path: Path):
    """Prevents: Spark does not start on a host whose name cannot be resolved."""
    unshare = ["unshare", "--map-root-user", "--uts"]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("here no process may have a host name of its own")
    answer = ask({}, tmp_path, *unshare, host="nowhere.invalid")
    assert answer["settings"]["spark.driver.host"] == "127.0.0.1"


_IN_OTHER_INSTALLATION = "import runpy, sys; sys.prefix = sys.argv[1]; "
_MAKE = "runpy.run_module('tableau_pipeline.snapshots.make_class_archive', run_name='__main__')"
_START = (
    "from tableau_pipeline.snapshots.spark import spark_session; "
    "assert spark_session().range(3).count() == 3"
)


def _python(code: str, prefix: Path, options: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", _IN_OTHER_INSTALLATION + code, str(prefix)],
        env={**os.environ, "SPARK_SUBMIT_OPTS": options},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return done.stdout + done.stderr


@pytest.mark.long
def test_spark_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    """Prevents: Java silently ignores the archive of classes, or the archive stops Spark."""
    prefix = tmp_path / "a folder with spaces"
    assert "Java makes no archive" not in _python(_MAKE, prefix)
    [archive] = (prefix / "share" / "tableau_pipeline").iterdir()
    log = tmp_path / "classes.log"
    _python(_START, prefix, f"-Xlog:class+load:file={log}")
    spark = [line for line in log.read_text().splitlines() if "org.apache.spark" in line]
    # Java generates the classes of lambdas in each process, so the archive does not have them.
    loaded = [line for line in spark if "Lambda" not in line]
    archived = [line for line in loaded if "shared objects file (top)" in line]
    assert len(archived) > 0.9 * len(loaded) > 0

    archive.unlink()
    archive.write_bytes(b"of another Java")
    assert "cds" not in _python(_START, prefix)


MODEL = (
    "SELECT id, IF(id % 3 = 0, NULL, 'é' || id) AS name, TIMESTAMP '2026-01-01 00:00:00Z' AS at, \
ARRAY(id, NULL) AS both FROM RANGE(1000)"
)

REMOTE = """
import sys
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline.snapshots.write import write_snapshot
resources = resources_from_env()
spark = resources["spark"].spark_session
assert "connect" in type(spark).__module__, type(spark)
store = resources["snapshots"].store
write_snapshot(spark.sql(sys.argv[1]), store, asset_key="model", run_id="test")
"""


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    with S3Server(tmp_path / "s3").running() as store:
        yield store.settings


@pytest.fixture
def connect_server(tmp_path: Path, s3: Mapping[str, str]) -> Iterator[str]:
    """Start a Spark Connect server in a second JVM, and yield its URL."""
    port, home, log = free_port(), Path(pyspark.__file__).parent, tmp_path / "connect.log"
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [
        home / "bin" / "spark-submit",
        "--class=org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master=local[1]",
        *(f"--conf={name}={value}" for name, value in settings.items()),
    ]
    ours = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    with running(command, folder=tmp_path, environment={**os.environ, **s3, **ours}, log=log):
        until(lambda: _listens(port), seconds=240, what="it should listen", log=log)
        yield f"sc://127.0.0.1:{port}"


def _listens(port: int) -> bool:
    try:
        create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.mark.long
def test_two_runs_store_the_same_snapshot(
    connect_server: str,
    s3: Mapping[str, str],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Prevents: SPARK_REMOTE has no effect, changes fingerprints, or mixes up two runs."""
    places = (str(tmp_path / "remote"), f"s3://{BUCKET}/remote")
    settings = {**os.environ, **s3, "SPARK_REMOTE": connect_server, "JAVA_HOME": "/no/java"}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", REMOTE, MODEL], env={**settings, "PIPELINE_DATA_DIR": place}
        )
        for place in places
    ]
    assert [run.wait(200) for run in runs] == [0, 0]
    here = store(spark.sql(MODEL), tmp_path / "here")
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    for place in places:
        monkeypatch.setenv("PIPELINE_DATA_DIR", place)
        there = resources_from_env()["snapshots"].snapshot("model")
        assert there
        assert there.data_version == here.data_version
        assert there.fingerprint == here.fingerprint
