"""The code location that comes with the package, and the folders of its data."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from tempfile import gettempdir

import dagster as dg
import pytest

from tableau_pipeline.components.loading import specs_of
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.resources import data_dir, resources_from_env, work_dir
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
    """Prevents: the location loses models, or cannot be loaded without secrets."""
    definitions = load()
    dg.Definitions.validate_loadable(definitions)
    keys = {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}
    assert keys == ASSETS
    assert [sensor.name for sensor in definitions.sensors or ()] == [
        "published_files",
        "refresh_after_models",
    ]


def test_the_lineage_folds_a_data_source_into_one_box():
    """Prevents: the lineage shows two boxes for each data source, in the group of the models."""
    graph = load().resolve_asset_graph()
    groups: dict[str, set[str]] = {}
    for key in graph.get_all_asset_keys():
        groups.setdefault(graph.get(key).group_name, set()).add(key.to_user_string())
    datasources = ("nyc_flights", "nyc_departures")
    assert {name: groups.pop(name) for name in datasources} == {
        name: {name, f"{name}_extract"} for name in datasources
    }
    assert [*groups] == ["flights"]


def test_code_references_show_where_an_asset_is_written():
    """Prevents: "open in editor" shows the YAML next to a model instead of the model's code."""
    written: dict[str, tuple[str, str]] = {}
    for spec in specs_of(load()):
        (reference,) = spec.metadata["dagster/code_references"].code_references
        line = Path(reference.file_path).read_text("utf-8").splitlines()[reference.line_number - 1]
        written[spec.key.to_user_string()] = (Path(reference.file_path).name, line)
    assert written["flights"] == ("models.py", "@model(metadata=_schema(FLIGHTS))")
    assert written["raw_planes"][0] == "raw.py"
    assert written["nyc_departures"][0] == written["nyc_departures_extract"][0] == "defs.yaml"


@pytest.mark.parametrize(("value", "status"), [("", "STOPPED"), ("on", "RUNNING")])
def test_a_deployment_switches_its_triggers_on(
    monkeypatch: pytest.MonkeyPatch, value: str, status: str
):
    """Prevents: a deployment never starts its triggers, or a laptop publishes without consent."""
    monkeypatch.setenv("PIPELINE_TRIGGERS", value)
    location = load()
    found = [*(location.sensors or ()), *(location.schedules or ())]
    assert [(each.name, each.default_status.name) for each in found] == [
        ("published_files", status),
        ("refresh_after_models", status),
        ("audit_schedule", status),
    ]
    assert "PIPELINE_TRIGGERS=on" in str(found[1].description)


def test_an_unknown_switch_is_an_error(monkeypatch: pytest.MonkeyPatch):
    """Prevents: the value `true` counts as off, and a night passes without a refresh."""
    monkeypatch.setenv("PIPELINE_TRIGGERS", "true")
    with pytest.raises(RefusedError, match="PIPELINE_TRIGGERS is 'true': set it to on or off"):
        load()


@pytest.mark.slow
def test_loading_warns_of_nothing():
    """Prevents: warnings in every log hide the warning that matters."""
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
    """Prevents: each step starts a JVM, or steps run one by one although Spark is remote."""
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    if remote:
        monkeypatch.setenv("SPARK_REMOTE", remote)
    found = load().executor
    assert getattr(found, "name", None) == executor


def test_secrets_show_nowhere_in_the_configuration(monkeypatch: pytest.MonkeyPatch):
    """Prevents: the web UI or a log shows a token."""
    monkeypatch.setenv("TABLEAU_TOKEN_NAME", "nightly")
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", "very-secret")
    resources = load().resources or {}
    assert "very-secret" not in repr(resources["tableau"])
    assert "very-secret" not in str(resources["tableau"].model_dump())
    assert os.environ["TABLEAU_TOKEN_VALUE"] == "very-secret"


@pytest.fixture(autouse=True)
def _no_data_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables that tests of the demo may have set in this process."""
    monkeypatch.delenv("PIPELINE_DATA_DIR", raising=False)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


def test_what_is_said_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Prevents: a data directory that a user has chosen is not used."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIPELINE_DATA_DIR", "lake")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    assert data_dir() == tmp_path / "lake"


@pytest.mark.parametrize("url", ["hdfs://lake/data", "s3:/lake/data", "S3://lake", "s3a://lake/x"])
def test_other_urls_are_refused(monkeypatch: pytest.MonkeyPatch, url: str):
    """Prevents: a mistyped URL becomes a local folder, which no other host sees."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", url)
    shown = f"{url.partition(':')[0].lower()}://lake"
    with pytest.raises(RefusedError) as caught:
        resources_from_env()
    assert f"PIPELINE_DATA_DIR is not the URL of an object store ({shown}): set" in str(
        caught.value
    )


@pytest.mark.parametrize(
    "url",
    [
        "s3://me:secret@lake/x",
        "s3a://me:secret@lake/x",
        "S3://me:secret@lake/x",
        "https://me:secret@lake/x",
        "https://lake/x?sig=secret",
        "file:///lake#secret",
        "s3://me:a/secret@lake/x",
        "s3://secret@lake/x",
        "s3://me:secret/x",
        "abfss://lake:secret@account.dfs.core.windows.net/x",
        "gs://lake/x?sig=secret",
        "s3://lake/#secret",
        "s3://lake/a%20secret",
    ],
)
def test_urls_hold_no_credentials(monkeypatch: pytest.MonkeyPatch, url: str):
    """Prevents: the web UI shows a secret, or a part of a URL is silently ignored."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", url)
    with pytest.raises(RefusedError, match=r"PIPELINE_DATA_DIR .*://") as caught:
        resources_from_env()
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("place", ["s3://lake", "gs://lake", "abfss://lake@a.dfs.core.windows.net"])
def test_an_object_store_has_the_snapshots_alone(monkeypatch: pytest.MonkeyPatch, place: str):
    """Prevents: extracts go to a bucket, or to a local folder with the name of the bucket."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", f"{place}/data/")
    assert resources_from_env()["snapshots"].root == f"{place}/data/snapshots"
    assert data_dir().is_relative_to(gettempdir())
    assert work_dir(keep=True) == data_dir()
    assert work_dir(keep=False) != data_dir()


KILLED = """
import os
from tableau_pipeline.objects.local_files import scratch
(scratch() / "extract.hyper").touch()
print(scratch(), flush=True)
os._exit(9)
"""


@pytest.mark.parametrize("location", ["s3://lake/data", "/lake/data"])
def test_what_a_killed_run_has_built_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, location: str
):
    """Prevents: files of killed runs fill a disk or a shared volume."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PIPELINE_DATA_DIR", location)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], check=False, capture_output=True, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    left = Path(killed.stdout.strip())
    assert left.is_relative_to(tmp_path)
    assert (left / "extract.hyper").exists()
    mine = work_dir(keep=False)
    assert mine.parent == left.parent
    assert not left.exists()


@pytest.mark.parametrize(("folder", "home"), [("", None), ("docs", None), ("/", "dagster_home")])
def test_the_checkout_keeps_its_own(monkeypatch: pytest.MonkeyPatch, folder: str, home: str | None):
    """Prevents: snapshots seem lost because a process was started in another folder."""
    monkeypatch.chdir(ROOT / folder)
    if home:
        monkeypatch.setenv("DAGSTER_HOME", str(ROOT / home))
    assert data_dir() == ROOT / "data"


def test_another_project_has_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Prevents: several projects store their data in the folder of the library."""
    monkeypatch.chdir(tmp_path)
    assert data_dir() == tmp_path / "data"
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    assert data_dir() == tmp_path / "home" / "data"
