"""The example that deletes Dagster's old runs."""

import runpy
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from tableau_pipeline.components.asset_names import asset_keys
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.components.triggers import AfterTrigger
from tableau_pipeline_tests.components.support.location import KEY, MODEL, Location
from tableau_pipeline_tests.conftest import ROOT

EXAMPLE = ROOT / "examples" / "delete_old_runs.py"
MODEL_KEY = dg.AssetKey.from_user_string(MODEL)


@pytest.mark.slow
def test_old_runs(location: Location):
    """Prevents: old runs stay for ever, or their deletion misleads a trigger."""

    @dg.asset(key=MODEL_KEY)
    def flights() -> None:
        location.model()

    definitions = dg.Definitions(
        assets=[refresh_assets(location.declaration("busy"), AfterTrigger("any")), flights],
        resources=location.resources(),
        executor=dg.in_process_executor,
    )
    job = definitions.resolve_implicit_global_asset_job_def()

    def run(*keys: dg.AssetKey) -> str:
        result = job.execute_in_process(instance=location.instance, asset_selection=[*keys])
        return result.run_id

    def tick(after: dg.EvaluateAutomationConditionsResult | None = None):
        cursor = after.cursor if after else None
        return dg.evaluate_automation_conditions(definitions, location.instance, cursor=cursor)

    first = tick()
    run(MODEL_KEY, *asset_keys("busy"))
    last = [run(*asset_keys("busy")), run(MODEL_KEY)]
    second = tick(first)
    assert second.get_num_requested(KEY) == 1
    last.append(run(*asset_keys("busy")))
    third = tick(second)
    delete_runs = runpy.run_path(str(EXAMPLE))["delete_runs"]
    day = timedelta(days=1)
    assert delete_runs(location.instance, before=datetime.now(UTC) - day) == 0
    assert delete_runs(location.instance, before=datetime.now(UTC) + day) == 2
    assert {found.run_id for found in location.instance.get_runs()} == {*last[1:]}
    files = Path(location.instance.root_directory, "history", "runs").glob("*-*.db")
    assert {file.stem for file in files} == {*last[1:]}
    fourth = tick(third)
    assert fourth.total_requested == 0
    run(MODEL_KEY)
    assert tick(fourth).get_num_requested(KEY) == 1
    assert location.wrong("busy") != []
    run(*asset_keys("busy"))
    assert location.wrong("busy") == []


def test_the_example_loads():
    """Prevents: no project can load the example."""
    found = runpy.run_path(str(EXAMPLE))
    dg.Definitions.validate_loadable(
        dg.Definitions(jobs=[found["old_runs"]], schedules=[found["each_sunday"]])
    )
