"""The refreshes that a sensor requests after dbt has run, based on files of a real dbt."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from upath import UPath

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.dbt import dbt_sensors
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.components.support.projects import declared
from tableau_pipeline_tests.conftest import ROOT

# The fixture runs dbt four times, which takes a while.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The run_results.json that dbt left after each of four commands, by a name for its outcome."""
    folder = tmp_path_factory.mktemp("dbt")
    project = folder / "transform"
    shutil.copytree(ROOT / "examples" / "dbt" / "transform", project)
    customers, orders = project / "models" / "customers.sql", project / "seeds" / "raw_orders.csv"
    good = customers.read_text("utf-8")
    kept = {}

    def dbt(command: str, name: str) -> None:
        subprocess.run(
            [Path(sys.executable).with_name("dbt"), command],
            cwd=project, env={**os.environ, "SHOP_LAKE": str(folder)}, capture_output=True,
        )  # fmt: skip
        kept[name] = folder / name / "run_results.json"
        shutil.copytree(project / "target", folder / name)

    customers.write_text("select * from nowhere", "utf-8")
    dbt("build", "customers failed")
    customers.write_text(good, "utf-8")
    dbt("retry", "customers retried")
    dbt("test", "tested")
    orders.write_text(orders.read_text("utf-8") + "1,1,1\n", "utf-8")
    dbt("build", "orders repeated")
    return kept


class Location:
    """Data sources that follow one run_results.json, and the cursor of their sensor."""

    def __init__(self, run_results: str | Path, **models: list[str] | None) -> None:
        datasources = [_datasource(key, str(run_results), names) for key, names in models.items()]
        (self.sensor,) = dbt_sensors({each.key: each.trigger for each in datasources})
        self.definitions = dg.Definitions(
            assets=[
                *(refresh_assets(each, each.trigger) for each in datasources),
                *(asset for key in models for asset in _models(key)),
            ],
            asset_checks=[_check(key) for key in models],
            sensors=[self.sensor],
            resources=resources_from_env(),
        )
        self.cursor: str | None = None

    def tick(self) -> tuple[dict[str, dg.RunRequest], str]:
        """The requested runs, by data source, and the reason for data sources that are skipped."""
        with dg.build_sensor_context(cursor=self.cursor, definitions=self.definitions) as context:
            result = self.sensor(context)
        if isinstance(result, dg.SkipReason):
            return {}, result.skip_message or ""
        assert isinstance(result, dg.SensorResult)
        self.cursor = result.cursor
        requests = {(each.run_key or "").split()[-1]: each for each in result.run_requests or ()}
        return requests, result.skip_reason.skip_message or "" if result.skip_reason else ""


def _datasource(key: str, run_results: str, models: list[str] | None) -> PublishedDatasource:
    edge = {"from": f"{key}_model", "to": f"{key}_days", "on": {"day": "day"}}
    return declared(
        name=key,
        tables={f"{key}_model": {}, f"{key}_days": {}},
        relationships=[edge],
        trigger={"dbt": run_results, **({"models": models} if models else {})},
    )


def _models(key: str) -> Iterator[dg.AssetsDefinition]:
    @dg.asset(name=f"{key}_raw", deps=["lake"])
    def raw() -> None: ...

    @dg.asset(name=f"{key}_model", deps=[raw])
    def model() -> None: ...

    @dg.asset(name=f"{key}_days", partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
    def days() -> None: ...

    return iter([raw, model, days])


def _check(key: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(name="sound", asset=f"{key}_model", blocking=True)
    def sound() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=True)

    return sound


@pytest.mark.long
def test_models_and_datasource_in_one_run_once(written: dict[str, Path]):
    """Prevents: a run omits models or blocking checks, or the sensor repeats a refresh."""
    location = Location(written["customers retried"], shop=None)
    (request,) = location.tick()[0].values()
    assert {key.to_user_string() for key in request.asset_selection or ()} == {
        *("shop_raw", "shop_model", "shop_extract", "shop")
    }
    job = location.definitions.resolve_job_def(location.sensor.job_name)
    run = job.get_subset(
        asset_selection=set(request.asset_selection or ()),
        asset_check_selection=request.asset_check_keys,
    )
    assert "shop_model_sound" in [node.name for node in run.nodes]
    invocation = json.loads(written["customers retried"].read_text())["metadata"]["invocation_id"]
    assert request.run_key == f"{invocation} shop"
    assert location.tick() == ({}, f"dbt's last invocation, {invocation}, was already followed")


def test_dependants_of_a_failed_model_are_left_out(
    written: dict[str, Path], capfd: pytest.CaptureFixture[str]
):
    """Prevents: after a failed model, old rows count as new, or every data source stops."""
    location = Location(
        written["customers failed"], all=None, orders=["orders"], customers=["customers", "orders"]
    )
    requests, _ = location.tick()
    assert requests.keys() == {"orders"}
    output = capfd.readouterr().err
    not_refreshed = re.findall(r"(\w+) is not refreshed after .*customers: error", output)
    assert not_refreshed == ["all", "customers"]
    failed = Location(written["customers failed"], customers=["model.shop.customers"])
    requests, reason = failed.tick()
    assert requests == {}
    assert reason.startswith("customers is not refreshed after dbt's invocation ")
    assert reason.endswith(": model.shop.customers: error")
    assert "was already followed" in failed.tick()[1]


def test_retry_counts_what_was_built_before_as_done(written: dict[str, Path]):
    """Prevents: after `dbt retry`, a data source waits for models that succeeded before."""
    location = Location(
        written["customers retried"], both=["orders", "customers"], orders=["orders"]
    )
    requests, _ = location.tick()
    assert requests.keys() == {"both"}
    _, reason = Location(written["customers retried"], orders=["orders"]).tick()
    assert reason.endswith(": orders: not part of it")


def test_other_commands_do_not_count(written: dict[str, Path]):
    """Prevents: each `dbt test` and `dbt docs generate` causes a refresh."""
    requests, reason = Location(written["tested"], shop=None).tick()
    assert requests == {}
    assert reason == "dbt's last command was `test`: only run, build, retry count"


def test_a_failed_test_holds_back_what_it_looks_at(written: dict[str, Path], tmp_path: Path):
    """Prevents: a refresh publishes rows that a dbt test has found wrong."""
    models = {"orders": ["orders"], "customers": ["customers"]}
    requests, _ = Location(written["orders repeated"], **models).tick()
    assert requests.keys() == {"customers"}
    _, reason = Location(written["orders repeated"], orders=["orders"]).tick()
    assert "unique_orders_order_id" in reason
    assert reason.endswith(": fail")
    # Without the manifest, the sensor does not know which model the test covers, and holds back
    # all data sources.
    alone = Path(shutil.copy(written["orders repeated"], tmp_path))
    assert Location(alone, **models).tick()[0] == {}


def test_a_file_that_is_absent_or_half_written(written: dict[str, Path], tmp_path: Path):
    """Prevents: a sensor fails, or forgets an invocation, because dbt is still writing the file."""
    file = tmp_path / "run_results.json"
    location = Location(file, shop=None)
    assert location.tick() == ({}, f"{file}: there is no such file")
    whole = written["customers retried"].read_bytes()
    for part in (b"", whole[:-100], b"[]", b'{"metadata": {}}', b"\xff\xfe"):
        file.write_bytes(part)
        requests, reason = location.tick()
        assert requests == {}
        assert reason.startswith(f"{file} cannot be read, perhaps because dbt is writing it: ")
    file.write_bytes(whole)
    assert location.tick()[0].keys() == {"shop"}


@pytest.mark.parametrize("scheme", ["memory:/", "file://"])
def test_a_file_in_an_object_store(written: dict[str, Path], tmp_path: Path, scheme: str):
    """Prevents: a sensor takes a URL for the name of a local folder."""
    url = f"{scheme}{tmp_path}/run_results.json"
    UPath(url).parent.mkdir(parents=True, exist_ok=True)
    UPath(url).write_bytes(written["orders repeated"].read_bytes())
    UPath(url).with_name("manifest.json").write_bytes(
        written["orders repeated"].with_name("manifest.json").read_bytes()
    )
    requests, _ = Location(url, orders=["orders"], customers=["customers"]).tick()
    assert requests.keys() == {"customers"}


def test_one_sensor_for_each_file():
    """Prevents: hundreds of data sources each read the same file, or two sensors share a name."""
    files = ["/a-b/run_results.json", "/a_b/run_results.json", "/a-b/run_results.json"]
    datasources = [_datasource(f"shop{i}", file, None) for i, file in enumerate(files)]
    triggers = {each.key: each.trigger for each in datasources}
    assert len({sensor.name for sensor in dbt_sensors(triggers)}) == 2
