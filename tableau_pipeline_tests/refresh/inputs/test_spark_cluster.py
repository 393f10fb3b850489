"""A model that a Spark cluster computes: a standalone master and two workers, as processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import Pipeline, published_rows
from tableau_pipeline_tests.spark_cluster import DRIVER, spark_cluster

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


@pytest.mark.slow
def test_a_model_of_a_cluster(pipeline: Pipeline, tmp_path: Path):
    """Prevents: a driver that executors do not reach, or that lets them take another Python."""
    conf = tmp_path / "conf"
    conf.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
    with spark_cluster(tmp_path) as cluster:
        (conf / "spark-defaults.conf").write_text(f"{DRIVER}\nspark.master {cluster.url}\n")
        done = subprocess.run(
            [sys.executable, "-c", MODEL, str(ROWS), str(pipeline.folder / "snapshots")],
            # Both are this host, so what the user says of the workers' Python is this one.
            env={**kept, "SPARK_CONF_DIR": str(conf), "PYSPARK_PYTHON": sys.executable},
            capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    settings, folders = json.loads(done.stdout.splitlines()[-1])
    assert settings["spark.master"] == cluster.url
    # The functions ran in the processes of two workers.
    assert len({folder.partition("/worker-")[2][0] for folder in folders}) == 2
    pipeline.run()
    assert pipeline.wrong() == []
    (item,) = pipeline.found()
    rows = published_rows(pipeline.eyes, str(item.id))
    assert rows.sort_by("flight_id").to_pylist() == flights(ROWS).to_pylist()
