"""The options of `refresh`, and a refresh in a deployment."""

import os
from pathlib import Path

import pytest

from tableau_pipeline_tests.command_line.conftest import World
from tableau_pipeline_tests.dagster_servers import dg_dev
from tableau_pipeline_tests.refresh.support.models import flights

MODELS = """
from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline.resources import SparkResource


@dg.asset
def raw_boats() -> None:
    Path("ran").touch()


@dg.asset(io_manager_key="snapshots", deps=[raw_boats])
def model_boats(spark: SparkResource) -> DataFrame:
    return spark.spark_session.sql("SELECT 1L AS flight_id, 2L AS delay")
"""


def test_full(morning: World):
    """Prevents: who distrusts what is published cannot have it replaced."""
    assert morning.run("refresh", "hotels").code == 0
    assert morning.run("refresh", "hotels", "--json").data["decision"] == "no change"
    full = morning.run("refresh", "hotels", "--full", "--json").data
    assert full["decision"] == "publish (replace)"


@pytest.mark.slow
def test_models(morning: World):
    """Prevents: a refresh "with its models" that runs only some of them, or none."""
    morning.declare("boats")
    models = morning.root / morning.name / "defs" / "boat_models.py"
    models.write_text(MODELS, "utf-8")
    try:
        told = morning.run("refresh", "boats", "--models", "--json")
        assert told.code == 0, told.text + told.errors
        assert told.data["decision"] == "publish (create)"
        assert (morning.root / "ran").exists()
    finally:
        morning.remove("boats")
        models.unlink()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_in_a_deployment(morning: World, tmp_path: Path):
    """Prevents: a refresh by the web server that reports success too early, or the wrong cause."""
    workspace = f"load_from: [{{python_module: {morning.name}.definitions}}]\n"
    (morning.root / "workspace.yaml").write_text(workspace, "utf-8")
    morning.model("arrivals", flights(12, delay=9))
    environment = {**os.environ, "PYTHONPATH": str(morning.root)}
    with dg_dev(morning.root, environment, tmp_path / "log") as server:
        told = morning.run("refresh", "arrivals", "--webserver", server.url)
        assert told.code == 0, told.errors
        assert "Arrivals: update" in told.text
        refused = morning.run("refresh", "delays", "--webserver", server.url)
        assert refused.code == 1
        assert "guard.max_shrink" in refused.text
        assert "Traceback" not in refused.text + refused.errors
    nobody = morning.run("refresh", "arrivals", "--webserver", server.url)
    assert nobody.code != 0
    assert f"No Dagster web server answers at {server.url}" in nobody.errors
