"""A model that a Spark cluster computes: a standalone master and two workers, as processes."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tableau_pipeline_tests.cluster.deployment import alone, can_be_hidden
from tableau_pipeline_tests.spark_cluster import DRIVER, SparkCluster, spark_cluster

ROWS = 1000
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


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder beside those of the workers, which is empty to them."""
    folder = tmp_path_factory.mktemp("cluster") / "lost"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def cluster(lost: Path) -> Iterator[SparkCluster]:
    with spark_cluster(lost.parent, start=alone) as running:
        yield running


def written(cluster: SparkCluster, snapshots: Path, *, conf: Path) -> CompletedProcess[str]:
    """Write the model from a driver of its own."""
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(f"{DRIVER}\nspark.master {cluster.url}\n")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
    return subprocess.run(
        [sys.executable, "-c", MODEL, str(ROWS), str(snapshots)],
        # Both are this host, so what the user says of the workers' Python is this one.
        env={**kept, "SPARK_CONF_DIR": str(conf), "PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not can_be_hidden(), reason="mount namespaces are not allowed here")
def test_files_on_the_disks_of_workers(cluster: SparkCluster, lost: Path, tmp_path: Path):
    """Prevents: rows that workers wrote to their own disks are missing from a green run."""
    done = written(cluster, lost / "snapshots", conf=tmp_path / "conf")
    assert done.returncode
    problem = 'Model "flights": Spark counted 1,000 rows, but the files in .* hold 0. Does every'
    assert re.search(problem, done.stderr), done.stderr
    assert not list(lost.rglob("*.json"))
