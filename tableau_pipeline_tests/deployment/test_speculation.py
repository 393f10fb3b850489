"""Copies of one task, of which Spark takes the first that ends."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableau_pipeline.objects.stores import opened
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.deployment.object_stores import BUCKET, S3Server
from tableau_pipeline_tests.deployment.speculative_run import MEETING, ROWS, TASKS
from tableau_pipeline_tests.deployment.speculative_run import MODEL as SPECULATED
from tableau_pipeline_tests.spark_cluster import DRIVER, spark_cluster

# As soon as half of the tasks have ended, Spark runs copies of the others.
SPECULATION = """
spark.speculation             true
spark.speculation.multiplier  1
spark.speculation.quantile    0.5
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_copies_of_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: rows twice in a model, because both copies of a task have stored them."""
    for name in ("conf", "copies"):
        (tmp_path / name).mkdir()
    with (
        S3Server(tmp_path / "s3").running() as store,
        spark_cluster(tmp_path, variables=store.settings) as cluster,
    ):
        defaults = f"{DRIVER}{SPECULATION}spark.master {cluster.url}\n"
        (tmp_path / "conf" / "spark-defaults.conf").write_text(defaults)
        for name, value in {
            **store.settings,
            "PIPELINE_DATA_DIR": f"s3://{BUCKET}/cluster",
            "SPARK_CONF_DIR": str(tmp_path / "conf"),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            MEETING: str(tmp_path / "copies"),
        }.items():
            monkeypatch.setenv(name, value)
        program = "tableau_pipeline_tests.deployment.speculative_run"
        done = subprocess.run(
            [sys.executable, "-m", program], env=os.environ, timeout=300,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-5000:]
        # The store of another test was at another port.
        opened.cache_clear()
        model = resources_from_env()["snapshots"].store.newest(SPECULATED)
        rows = pa.concat_tables(pq.read_table(path, columns=["id"]) for path in model.paths)
    assert {path.name for path in (tmp_path / "copies").iterdir()} == {"0", "1"}
    stored = [*(tmp_path / "s3" / "buckets").rglob("part-*.parquet")]
    assert len(stored) == TASKS + 1
    assert len(model.paths) == TASKS
    assert sorted(rows["id"].to_pylist()) == [*range(ROWS)]
