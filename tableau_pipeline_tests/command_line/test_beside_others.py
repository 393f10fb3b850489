"""Refreshes by commands and by the daemon, partitioned models, Ctrl-C, and a token in use."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository

from tableau_pipeline.publishing.session import PersonalAccessToken, signed_in
from tableau_pipeline_tests.command_line.conftest import World, environment, project
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_sandbox.faults import HoldJobs
from tableau_sandbox.testing import running_sandbox

MODELS = """import dagster as dg


class Manifest:
    manifest = {
        "nodes": {
            "model.shop.flights": {
                "columns": {"delay": {"description": "Minutes late.", "meta": {}}}
            }
        }
    }


in_dbt = dg.AssetSpec(
    "dbt_flights",
    metadata={
        "dagster_dbt/manifest": Manifest(),
        "dagster_dbt/unique_id": "model.shop.flights",
    },
)


@dg.asset(deps=["dbt_flights"])
def model_flights() -> dg.MaterializeResult:
    return dg.MaterializeResult()
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A data source whose model depends on a dbt model, which describes a column."""
    project(tmp_path, "lineage")
    with running_sandbox(tmp_path / "sandbox") as sandbox:
        monkeypatch.chdir(tmp_path)
        for name, value in environment(tmp_path, sandbox).items():
            monkeypatch.setenv(name, value)
        world = World(tmp_path, "lineage", sandbox)
        world.declare("flights")
        (tmp_path / "lineage" / "defs" / "models.py").write_text(MODELS, "utf-8")
        world.model("flights", flights(8))
        yield world
        world.forget()


@pytest.mark.slow
def test_columns_of_dbt_stay(world: World):
    """Prevents: one run publishes dbt's column descriptions, and the next run removes them."""
    assert world.run("refresh", "flights").code == 0
    assert "no change" in world.run("refresh", "flights", "--models").text
    assert "no change" in world.run("refresh", "flights").text
    assert world.run("plan").code == 0
    # Load the code location again, as the processes of the daemon and of `dg launch` do.
    world.forget()
    location = ReconstructableRepository.for_module("lineage.definitions", "defs", None)
    with (
        dg.DagsterInstance.get() as instance,
        dg.execute_job(
            location.get_reconstructable_job("__ASSET_JOB"),
            instance=instance,
            asset_selection=[dg.AssetKey("flights_extract"), dg.AssetKey("flights")],
        ) as done,
    ):
        assert done.success
    assert world.run("plan").code == 0


@pytest.mark.slow
def test_partitioned_models(world: World):
    """Prevents: `refresh --models` skips a partitioned model, or suggests a failing command."""
    daily = "partitions_def=dg.DailyPartitionsDefinition('2026-01-01'), deps"
    models = MODELS.replace("@dg.asset(deps", f"@dg.asset({daily}")
    (world.root / "lineage" / "defs" / "models.py").write_text(models, "utf-8")
    errors = world.run("refresh", "flights", "--models", "--dry-run").errors
    assert "dg launch --assets model_flights --partition-range FIRST...LAST" in errors


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_interrupted(world: World, number: signal.Signals):
    """Prevents: after an interruption, the command or `status` shows the name of a Dagster
    exception."""
    command = [str(Path(sys.executable).with_name("tableau-pipeline")), "refresh", "flights"]
    pipe = subprocess.PIPE
    with (
        world.sandbox.armed(HoldJobs()),
        subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process,
    ):
        assert process.stderr
        while "Decision" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        result, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert result.startswith("x It was interrupted, by Ctrl-C or by the end of its host.")
    assert "DagsterExecutionInterruptedError" not in result + errors
    (shown,) = world.run("status", "flights", "--json").data["datasources"]
    assert "It was interrupted" in shown["why"], shown


@pytest.mark.slow
@pytest.mark.few_variants(1)
@pytest.mark.parametrize("command", [("status",), ("diff", "flights"), ("plan",)])
def test_a_token_in_use(world: World, command: tuple[str, ...]):
    """Prevents: a command waits in silence while a refresh uses the token."""
    assert world.run("refresh", "flights").code == 0
    token = PersonalAccessToken(world.sandbox.token_name, world.sandbox.token_secret)
    taken = Event()

    def hold() -> None:
        with signed_in(world.sandbox.url, credentials=token):
            taken.set()
            time.sleep(4)

    with ThreadPoolExecutor() as pool:
        held = pool.submit(hold)
        taken.wait()
        result = world.run(*command)
        held.result()
    assert result.code == 0
    assert f'Waiting for token "{world.sandbox.token_name}"' in result.errors
