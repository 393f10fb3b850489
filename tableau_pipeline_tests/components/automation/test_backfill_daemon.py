"""A backfill as the web UI launches it, with the real daemon."""

import os
import shutil
from datetime import date, timedelta
from pathlib import Path

import pytest

from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.dagster_servers import dg_dev
from tableau_sandbox.testing import Sandbox

FILES = {
    "workspace.yaml": """
load_from:
  - python_module: {module_name: daily.definitions, working_directory: ., location_name: daily}
""",
    "pyproject.toml": """
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "daily"
""",
    "daily/__init__.py": "",
    "daily/definitions.py": """
from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
""",
    "daily/defs/__init__.py": "",
    "daily/defs/tableau/defs.yaml": "type: tableau_pipeline.components.TableauPipeline",
    "daily/defs/models.py": """
import dagster as dg

from tableau_pipeline.resources import SparkResource


@dg.asset(
    partitions_def=dg.DailyPartitionsDefinition("2026-01-01", timezone="UTC"),
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={"partition_expr": "day"},
    io_manager_key="snapshots",
)
def orders(context: dg.AssetExecutionContext, spark: SparkResource):
    window = context.partition_time_window
    days = (window.end - window.start).days
    return spark.spark_session.sql(
        f"SELECT DATE '{window.start.date()}' + CAST(d.id AS INT) AS day, n.id AS id, "
        f"uuid() AS changed FROM RANGE({days}) d CROSS JOIN RANGE(3) n"
    )
""",
    "daily/defs/shop/defs.yaml": """
type: tableau_pipeline.components.PublishedDatasource

attributes:
  name: Daily Orders
  project: Default
  tables:
    orders:
      refresh: {partitions: {column: day}}
  trigger: {after: any}
""",
}
DAYS = [str(date(2026, 1, 1) + timedelta(days=number)) for number in range(90)]


def project(folder: Path) -> Path:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder


@pytest.mark.slow
def test_a_backfill_from_the_web_is_one_run_and_one_refresh(
    tableau_sandbox: Sandbox, tmp_path: Path
):
    """Prevents: a run or a publication for each day of a backfill; a day again that ships more."""
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "PIPELINE_DATA_DIR": str(tmp_path / "data"),
        "PIPELINE_TRIGGERS": "on",
    }
    with dg_dev(project(tmp_path / "project"), environment, tmp_path / "dev.log") as server:
        server.backfill("orders", DAYS)
        model, _ = server.next_run("orders")
        first, assets = server.next_run("daily_orders")
        assert assets == ["daily_orders", "daily_orders_extract"]
        shipped = server.shipped("daily_orders")
        assert (shipped["decision"], shipped["dagster/row_count"]) == ("publish (create)", 90 * 3)

        server.backfill("orders", DAYS[40:41])
        again, _ = server.next_run("orders", known={model})
        second, _ = server.next_run("daily_orders", known={first})
        shipped = server.shipped("daily_orders")
        assert shipped["decision"] == "update"
        assert shipped["rows changed"] == 3

        # The sensor has looked several times since the first one.
        assert server.runs_of("orders").keys() == {model, again}
        assert server.runs_of("daily_orders").keys() == {first, second}
