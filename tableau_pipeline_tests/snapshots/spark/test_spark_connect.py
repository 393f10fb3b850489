import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from socket import create_connection

import pyspark
import pytest
from pyspark.sql import SparkSession

from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.deployment.s3 import BUCKET, s3_server
from tableau_pipeline_tests.ports import free_port
from tableau_pipeline_tests.snapshots.support.samples import store
from tableau_pipeline_tests.waiting import until

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
    with s3_server(tmp_path) as settings:
        yield settings


@pytest.fixture
def connect_server(tmp_path: Path, s3: Mapping[str, str]) -> Iterator[str]:
    """A Spark Connect server of its own, in a second JVM."""
    port = free_port()
    home = Path(pyspark.__file__).parent
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    options = [f"--conf={name}={value}" for name, value in settings.items()]
    with (tmp_path / "connect.log").open("w") as log:
        server = subprocess.Popen(
            [
                home / "bin" / "spark-submit",
                "--class=org.apache.spark.sql.connect.service.SparkConnectServer",
                "--master=local[1]",
                *options,
            ],
            env={**os.environ, **s3, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
            stdout=log,
            stderr=log,
        )
    try:
        until(
            lambda: _listens(port), seconds=240, what="it should listen",
            log=tmp_path / "connect.log",
        )  # fmt: skip
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def _listens(port: int) -> bool:
    try:
        create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_two_runs_store_the_same_snapshot(
    connect_server: str,
    s3: Mapping[str, str],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    """Prevents: SPARK_REMOTE that is ignored, or under which every model seems changed; runs that
    disturb each other on one server."""
    places = (str(tmp_path / "remote"), f"s3://{BUCKET}/remote")
    settings = {**os.environ, **s3, "SPARK_REMOTE": connect_server, "JAVA_HOME": "/no/java"}
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", REMOTE, MODEL],
            env={**settings, "PIPELINE_DATA_DIR": place},
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
