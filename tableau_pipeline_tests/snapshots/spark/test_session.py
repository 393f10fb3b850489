"""The session that models are computed with."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

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
# Where Spark looks for settings, other than in its files.
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
    """What a session of its own process says of itself, with this `spark-defaults.conf`."""
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
    # What is set for Spark's Java process would look like the user's in each further process.
    assert set(answer["environment"]) & set(VARIABLES) == {"PYSPARK_PYTHON"}
    return answer


@pytest.mark.slow
def test_python_functions_run_in_this_interpreter(spark: SparkSession):
    """Prevents: a model's functions in another Python, unless the environment is activated."""
    (row,) = spark.range(1).select(udf(lambda: sys.prefix)()).collect()
    assert row[0] == sys.prefix


@pytest.mark.slow
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
    """Prevents: a spark-defaults.conf that is read, and overridden."""
    answer = ask(USERS, tmp_path, **arguments)
    wanted = {**USERS, "spark.driver.maxResultSize": "9m", **given, **ALWAYS}
    # Spark puts options of its own before it.
    option = wanted.pop("spark.driver.extraJavaOptions")
    found = answer["settings"]
    assert {key: found.get(key) for key in wanted} == wanted
    assert "spark.driver.bindAddress" not in found
    assert {option, f"-Xmx{wanted['spark.driver.memory']}"} <= set(answer["java"])


@pytest.mark.slow
def test_settings_without_a_user(tmp_path: Path):
    """Prevents: a driver that others reach, Spark's log and progress bars in each run's log."""
    answer = ask({}, tmp_path)
    assert {key: answer["settings"].get(key) for key in OURS} == OURS
    assert "-Xmx2g" in answer["java"]
    (log,) = (each for each in answer["java"] if each.startswith("-Dlog4j2.configurationFile="))
    assert log.endswith("/tableau_pipeline/log4j2.properties")


@pytest.mark.slow
def test_a_host_whose_name_nobody_knows(tmp_path: Path):
    """Prevents: a laptop in another network, or a container, on which Spark does not start."""
    unshare = ["unshare", "--map-root-user", "--uts"]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("here no process may have a host name of its own")
    answer = ask({}, tmp_path, *unshare, host="nowhere.invalid")
    assert answer["settings"]["spark.driver.host"] == "127.0.0.1"
