import os
import subprocess
import sys
import tomllib

import dagster as dg
import pytest
import yaml

from tableau_pipeline_tests.conftest import ROOT

ASSETS = {
    "raw_flights",
    "raw_airlines",
    "raw_airports",
    "raw_planes",
    "flights",
    "airlines",
    "airports",
    "planes",
    "daily_departures",
    "nyc_flights_extract",
    "nyc_flights",
    "nyc_departures_extract",
    "nyc_departures",
}


def load() -> dg.Definitions:
    from tableau_pipeline.definitions import defs

    return defs()


def test_everything_loads_without_any_setting():
    """Prevents: models that vanish because of a file beside them, or secrets needed to look."""
    definitions = load()
    dg.Definitions.validate_loadable(definitions)
    keys = {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}
    assert keys == ASSETS
    assert [sensor.name for sensor in definitions.sensors or ()] == ["refresh_after_models"]


@pytest.mark.parametrize(("value", "status"), [("", "STOPPED"), ("on", "RUNNING")])
def test_a_deployment_switches_its_triggers_on(
    monkeypatch: pytest.MonkeyPatch, value: str, status: str
):
    """Prevents: a new deployment whose dashboards stand still until somebody clicks; a laptop that
    publishes because somebody opened the web UI."""
    monkeypatch.setenv("PIPELINE_TRIGGERS", value)
    location = load()
    found = [*(location.sensors or ()), *(location.schedules or ())]
    assert [(each.name, each.default_status.name) for each in found] == [
        ("refresh_after_models", status),
        ("audit_schedule", status),
    ]
    assert "PIPELINE_TRIGGERS=on" in str(found[0].description)


def test_an_unknown_switch_is_an_error(monkeypatch: pytest.MonkeyPatch):
    """Prevents: `true` taken for off, and a night without a refresh."""
    monkeypatch.setenv("PIPELINE_TRIGGERS", "true")
    with pytest.raises(Exception, match="tableau") as raised:
        load()
    assert "PIPELINE_TRIGGERS is 'true': set it to on or off" in str(raised.value.__cause__)


@pytest.mark.slow
def test_loading_warns_of_nothing():
    """Prevents: warnings in every log page, among which nobody sees the one that matters."""
    loaded = subprocess.run(
        [
            sys.executable,
            "-W",
            "always",
            "-c",
            "from tableau_pipeline.definitions import defs; defs()",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    ours = [line for line in loaded.stderr.splitlines() if "BetaWarning" in line]
    assert ours == []


@pytest.mark.parametrize(
    ("remote", "executor"), [(None, "in_process"), ("sc://127.0.0.1:15002", None)]
)
def test_steps_share_one_jvm_unless_spark_is_remote(
    monkeypatch: pytest.MonkeyPatch, remote: str | None, executor: str | None
):
    """Prevents: a JVM for each step, or steps one by one where no JVM has to be shared."""
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    if remote:
        monkeypatch.setenv("SPARK_REMOTE", remote)
    found = load().executor
    assert getattr(found, "name", None) == executor


def test_workspace_and_project_name_the_same_location():
    """Prevents: schedules that forget that they were on, since the location has another name."""
    workspace = yaml.safe_load((ROOT / "workspace.yaml").read_text())
    (target,) = workspace["load_from"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dg"]["project"]
    assert target["python_module"]["location_name"] == project["code_location_name"]
    assert target["python_module"]["module_name"].startswith(f"{project['root_module']}.")


def test_secrets_show_nowhere_in_the_configuration(monkeypatch: pytest.MonkeyPatch):
    """Prevents: a token on the page of the resource in the web UI, or in a log of its config."""
    monkeypatch.setenv("TABLEAU_TOKEN_NAME", "nightly")
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", "very-secret")
    resources = load().resources or {}
    assert "very-secret" not in repr(resources["tableau"])
    assert "very-secret" not in str(resources["tableau"].model_dump())
    assert os.environ["TABLEAU_TOKEN_VALUE"] == "very-secret"
