"""A model that a Spark cluster computes: a standalone master and two workers, as processes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, published_rows
from tableau_pipeline_tests.waiting import until

ROWS = 1000
HOST = "127.0.0.1"
DEFAULTS = f"""
spark.driver.host                                  {HOST}
spark.executor.memory                              512m
spark.scheduler.minRegisteredResourcesRatio        1.0
spark.scheduler.maxRegisteredResourcesWaitingTime  60s
"""
MODEL = """
import json, os, sys
from pathlib import Path
from pyspark.sql.functions import udf
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline.snapshots.write import write_snapshot

rows, folder = int(sys.argv[1]), Path(sys.argv[2])
spark = resources_from_env()["spark"].spark_session
spark.udf.register("carrier", lambda number: ("AA", "UA")[number % 2])
frame = spark.sql(
    "SELECT id AS flight_id, carrier(id) AS carrier, CAST(id AS INT) AS delay "
    f"FROM range(0, {rows}, 1, 4)"
)
write_snapshot(frame, SnapshotStore(folder), asset_key="flights", run_id="cluster")
where = spark.range(0, 100, 1, 8).select(udf(lambda: os.getcwd())()).distinct().collect()
settings = dict(spark.sparkContext.getConf().getAll())
print("\\n" + json.dumps([settings, sorted(row[0] for row in where)]))
"""


@contextmanager
def daemon(name: str, log: Path, *options: str) -> Generator[None]:
    """One of Spark's own, for as long as the block runs; pip's pyspark has no start scripts."""
    home = Path(pyspark.__file__).parent
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
    with log.open("w") as output:
        process = subprocess.Popen(
            [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *options],
            env={**kept, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": HOST},
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def said(log: Path, pattern: str) -> str:
    """What a daemon says once it is ready."""
    found = until(
        lambda: re.search(pattern, log.read_text()), seconds=120, what=f"no {pattern}", log=log
    )
    return found[1]


@pytest.fixture
def cluster(tmp_path: Path) -> Generator[str]:
    """The URL of a master whose workers have registered, with one core each."""
    common = ("--host", HOST, "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        log = tmp_path / "master.log"
        stack.enter_context(daemon("master.Master", log, *common))
        url = said(log, r"Starting Spark master at (spark://\S+)")
        for number in (1, 2):
            log = tmp_path / f"worker{number}.log"
            work = tmp_path / f"worker{number}"
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(work))
            stack.enter_context(daemon("worker.Worker", log, *common, *size, url))
            said(log, r"Successfully registered with master (\S+)")
        yield url


@pytest.mark.slow
def test_a_model_of_a_cluster(cluster: str, pipeline: Pipeline, tmp_path: Path):
    """Prevents: a driver that executors do not reach, or that lets them take another Python."""
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(f"{DEFAULTS}\nspark.master {cluster}\n")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
    done = subprocess.run(
        [sys.executable, "-c", MODEL, str(ROWS), str(pipeline.folder / "snapshots")],
        # Both are this host, so what the user says of the workers' Python is this one.
        env={**kept, "SPARK_CONF_DIR": str(conf), "PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    settings, folders = json.loads(done.stdout.splitlines()[-1])
    assert settings["spark.master"] == cluster
    # The functions ran in the processes of two workers.
    assert len({folder.partition("/worker")[2][0] for folder in folders}) == 2
    pipeline.run()
    assert pipeline.wrong() == []
    (item,) = pipeline.found()
    rows = published_rows(pipeline.eyes, str(item.id))
    assert rows.sort_by("flight_id").to_pylist() == flights(ROWS).to_pylist()
