"""Which snapshots a refresh leaves, as Dagster runs it: two data sources share a model."""

import shutil
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
import pytest

from tableau_pipeline.components.assets import refresh_assets
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    SparkResource,
    TableauServerResource,
)
from tableau_pipeline.sandbox.testing import Sandbox, running_sandbox
from tableau_pipeline_tests.refresh.models import flights, snapshot
from tableau_pipeline_tests.snapshots.aged import aged

MODEL = "raw/flights"


class Location:
    """Code locations of one data source each, on one instance and one folder of snapshots."""

    def __init__(self, sandbox: Sandbox, data: Path, instance: dg.DagsterInstance):
        self.sandbox, self.root, self.instance = sandbox, data / "snapshots", instance
        self._rows = 0

    def model(self, days: float) -> Path:
        """Give the model new content, as of so many days ago."""
        self._rows += 1
        written = snapshot(self.root, flights(8, delay=self._rows), asset_key=MODEL)
        return aged(written.folder, self.root, days, MODEL)

    def refresh(
        self,
        key: str,
        *,
        keep_days: float = 14,
        declared: Mapping[str, Any] = MappingProxyType({}),
        **config: Any,
    ) -> dg.ExecuteInProcessResult:
        tables = (Table("flights", MODEL),)
        declaration = replace(Declaration(key, key, "Default", tables), **declared)
        tableau = TableauServerResource(
            server_url=self.sandbox.url,
            username=self.sandbox.user,
            password=self.sandbox.password,
        )
        snapshots = SnapshotIOManager(
            root=str(self.root), spark=SparkResource(), keep_days=keep_days
        )
        definitions = dg.Definitions(
            assets=[refresh_assets(declaration, None)],
            resources={"hyper": HyperResource(), "tableau": tableau, "snapshots": snapshots},
            executor=dg.in_process_executor,
        )
        return definitions.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=self.instance,
            raise_on_error=False,
            run_config={"ops": {key: {"config": config}}},
        )

    def stored(self) -> set[Path]:
        return {manifest.parent for manifest in self.root.rglob("manifest.json")}

    def log(self, result: dg.ExecuteInProcessResult) -> str:
        entries = self.instance.all_logs(result.run_id)
        return "\n".join(entry.user_message for entry in entries)


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Location, None, None]:
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path))
    with running_sandbox(tmp_path / "sandbox") as sandbox, dg.instance_for_test() as instance:
        yield Location(sandbox, tmp_path, instance)


def test_what_another_data_source_holds_stays(location: Location):
    # Prevents: a full refresh of every data source that is refreshed less often than its sibling.
    first = location.model(60)
    assert location.refresh("monthly").success
    second = location.model(50)
    assert location.refresh("weekly").success
    assert location.stored() == {first, second}
    third = location.model(40)
    result = location.refresh("weekly")
    assert location.stored() == {first, third}
    assert "Removed 1 old snapshots of raw/flights" in location.log(result)
    assert location.refresh("monthly").success
    assert location.stored() == {third}


@pytest.mark.parametrize("published", [False, True], ids=["first publish", "later"])
def test_what_an_open_intent_is_about_stays(
    location: Location, monkeypatch: pytest.MonkeyPatch, published: bool
):
    # Prevents: no way to tell what an interrupted refresh changed, once a sibling went on.
    keep_days = 1e-9  # so that the state is older than that, too
    base = location.model(90)
    if published:
        assert location.refresh("torn").success
    target = location.model(80)

    def no_answer(*_: Any, **__: Any) -> None:
        raise RefreshError("the line went dead")

    with monkeypatch.context() as patch:
        patch.setattr(TableauSite, "update" if published else "publish", no_answer)
        assert not location.refresh("torn", keep_days=keep_days).success
    location.model(70)
    newest = location.model(60)
    assert location.refresh("sibling", keep_days=keep_days).success
    assert location.stored() == {target, newest} | ({base} if published else set())
    assert location.refresh("torn", keep_days=keep_days).success
    assert location.stored() == {newest}


def test_only_a_refresh_that_succeeded_collects(
    location: Location, monkeypatch: pytest.MonkeyPatch
):
    # Prevents: a rehearsal that removes what it was rehearsing with.
    stored = {location.model(90), location.model(80)}
    assert location.refresh("weekly", dry_run=True).success
    assert location.refresh("weekly", publish=False).success
    location.sandbox.stop()
    assert not location.refresh("weekly").success
    assert location.stored() == stored


def test_a_failure_is_a_warning(location: Location, monkeypatch: pytest.MonkeyPatch):
    # Prevents: a refresh that failed for a file that nobody needs, after it has published.
    location.model(90)
    location.model(80)

    def no_permission(folder: Path) -> None:
        raise PermissionError(f"not allowed: {folder}")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", no_permission)
        result = location.refresh("weekly")
    assert result.success
    assert "Old snapshots were not removed: not allowed" in location.log(result)
    published = location.instance.get_latest_materialization_event(dg.AssetKey("weekly"))
    assert published
    assert published.run_id == result.run_id


def test_keep_days_is_for_the_user_to_set(location: Location):
    # Prevents: a setting that does nothing.
    stored = {location.model(90), location.model(80)}
    assert location.refresh("weekly", keep_days=85).success
    assert location.stored() == stored
    assert location.refresh("weekly", keep_days=75).success
    assert location.stored() == {max(stored)}
