"""The examples as a user runs them: the two locations with dbt, and the notebook's cells."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tableau_pipeline_tests.components.support.location import rows_on
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.dagster_servers import WebServer, dg_dev, until
from tableau_sandbox.testing import Sandbox, running_sandbox

BIN = Path(sys.executable).parent
SENSORS = """
{ sensorsOrError(repositorySelector: {repositoryLocationName: "dashboards",
                                      repositoryName: "__repository__"}) {
    ... on Sensors { results { name sensorState { status ticks(limit: 1) { status } } } } } }"""
SWITCH_ON = """
mutation($name: String!) {
  startSensor(sensorSelector: {repositoryLocationName: "dashboards",
                               repositoryName: "__repository__", sensorName: $name}) {
    __typename ... on Sensor { sensorState { status } } ... on PythonError { message } } }"""
# The seconds in which both sensors tick twice: each ticks every 30 seconds.
TWO_LOOKS = 70


@dataclass
class Shop:
    """A copy of the dbt example, and its servers."""

    folder: Path
    environment: dict[str, str]
    server: WebServer

    def write(self, seed: str, *rows: str) -> None:
        file = self.folder / "transform" / "seeds" / f"{seed}.csv"
        head = file.read_text("utf-8").splitlines()[0]
        file.write_text("\n".join([head, *rows, ""]), "utf-8")

    def dbt(self, command: str) -> None:
        """Run a command of dbt outside Dagster."""
        subprocess.run(
            [BIN / "dbt", command, "--target-path", f"{self.environment['SHOP_LAKE']}/target"],
            cwd=self.folder / "transform", env=self.environment, check=True, capture_output=True,
        )  # fmt: skip

    def dbt_in_dagster(self) -> str:
        names = ("raw_orders", "raw_customers", "shop/orders", "shop/customers")
        return self.server.launch("warehouse", *names)

    def switch_on(self, sensor: str) -> None:
        """Start a sensor that was off, and wait for its first tick."""
        ((name, state),) = [each for each in self.sensors().items() if each[0].startswith(sensor)]
        assert state["status"] == "STOPPED"
        answer = self.server.ask(SWITCH_ON, name=name)["startSensor"]
        assert answer["sensorState"]["status"] == "RUNNING"
        until(
            lambda: self.sensors()[name]["ticks"] and self.sensors()[name]["ticks"][0]["status"]
            in ("SKIPPED", "SUCCESS"),
            seconds=200, what=f"{name} should have ticked",
        )  # fmt: skip

    def sensors(self) -> dict[str, dict[str, Any]]:
        found = self.server.ask(SENSORS)["sensorsOrError"]["results"]
        return {each["name"]: each["sensorState"] for each in found}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    tmp_path = tmp_path_factory.mktemp("shop")
    folder, lake, home = tmp_path / "dbt", tmp_path / "lake", tmp_path / "home"
    shutil.copytree(ROOT / "examples" / "dbt", folder, ignore=shutil.ignore_patterns("target"))
    for each in (lake, home):
        each.mkdir()
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
    with running_sandbox(tmp_path / "sandbox") as sandbox:
        environment = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "DAGSTER_HOME": str(home),
            "SHOP_LAKE": str(lake),
            "PIPELINE_DATA_DIR": str(tmp_path / "data"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TABLEAU_SERVER_URL": sandbox.url,
            "TABLEAU_TOKEN_NAME": sandbox.token_name,
            "TABLEAU_TOKEN_VALUE": sandbox.token_secret,
        }
        with dg_dev(folder, environment, tmp_path / "dev.log") as server:
            yield Shop(folder, environment, server)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_one_refresh_after_dbt_in_another_location(shop: Shop):
    """Prevents: a refresh misses dbt in another location, runs twice, or ships rejected rows."""
    assert shop.dbt_in_dagster() == "SUCCESS"
    everything = ("sales", "shop_sales_extract", "shop_sales")
    assert shop.server.launch("dashboards", *everything) == "SUCCESS"
    shop.switch_on("refresh_after_models")
    known = shop.server.runs_of("shop_sales").keys()

    # One order is corrected, one order is gone, and two orders are new.
    shop.write("raw_orders", "1,1,1250", "2,2,400", "4,1,5", "5,2,6")
    assert shop.dbt_in_dagster() == "SUCCESS"
    run, assets = shop.server.next_run("shop_sales", known=known)
    assert assets == ["shop_sales", "shop_sales_extract"]
    shipped = shop.server.shipped("shop_sales")
    assert (shipped["run"], shipped["decision"]) == (run, "update")
    assert shipped["rows sent"] == 3
    assert shipped["dagster/row_count"] == 4

    # A repeated order fails dbt's test, which is a blocking check here.
    shop.write("raw_orders", "1,1,1250", "1,1,1250")
    assert shop.dbt_in_dagster() == "FAILURE"
    time.sleep(TWO_LOOKS)
    assert shop.server.quiet()
    assert shop.server.runs_of("shop_sales").keys() - known == {run}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_one_run_after_dbt_outside_dagster(shop: Shop):
    """Prevents: a refresh misses dbt outside Dagster, runs twice, or runs before its model."""
    shop.write("raw_orders", "1,1,1250")
    shop.switch_on("refresh_after_dbt")
    shop.dbt("build")
    first, assets = shop.server.next_run("shop_customers")
    assert assets == ["customers", "shop_customers", "shop_customers_extract"]
    assert shop.server.shipped("shop_customers")["decision"] == "publish (create)"

    shop.write("raw_customers", "1,Ada", "2,Grace H.", "3,Edsger")
    shop.dbt("build")
    second, _ = shop.server.next_run("shop_customers", known={first})
    shipped = shop.server.shipped("shop_customers")
    assert (shipped["run"], shipped["decision"]) == (second, "update")
    assert shipped["rows sent"] == 2

    shop.dbt("test")
    time.sleep(TWO_LOOKS)
    assert shop.server.runs_of("shop_customers").keys() == {first, second}


NOTEBOOK = ROOT / "examples" / "refresh_from_a_notebook.ipynb"


@pytest.mark.slow
def test_every_cell(
    spark: SparkSession, tableau_sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: the notebook fails, or publishes other rows than it shows."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path))
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), names)
    decisions = [names[run].partition(":")[0] for run in ("first", "again", "changed")]
    assert decisions[:2] == ["publish (create)", "no change"]
    assert decisions[2] in ("update", "publish (replace)")
    published = rows_on(tableau_sandbox, "Notebook Orders")
    assert set(published["order_id"].to_pylist()) == set(range(1_000)) - {7}
