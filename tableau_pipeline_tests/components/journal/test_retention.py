"""Which snapshots a refresh leaves, as Dagster runs it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
import pytest

from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline.resources import SnapshotIOManager, SparkResource
from tableau_pipeline.snapshots.store import LocalStorage, SnapshotStore
from tableau_pipeline_tests.components.support.location import MODEL, Location
from tableau_pipeline_tests.refresh.support.proxies import Proxy

KEEP_NOTHING = 1e-9


@pytest.mark.slow
def test_what_another_data_source_holds_stays(location: Location):
    """Prevents: a full refresh of each data source that is refreshed less often than another."""
    location.model()
    assert location.refresh("monthly").success
    location.model()
    assert location.refresh("weekly").success
    location.model()
    location.days_pass()
    result = location.refresh("weekly")
    assert location.stored() == [1, 3]
    assert "Removed 1 old snapshots" in location.log(result)
    assert location.refresh("monthly").success
    assert location.stored() == [3]


@pytest.mark.parametrize(
    "published",
    [pytest.param(False, marks=pytest.mark.slow), True],
    ids=["first publish", "later"],
)
def test_what_an_open_intent_is_about_stays(
    location: Location, monkeypatch: pytest.MonkeyPatch, published: bool
):
    """Prevents: no way to tell what an interrupted refresh left, once another one went on."""
    location.model()
    if published:
        assert location.refresh("torn").success
    location.model()

    def no_answer(*_: Any, **__: Any) -> None:
        raise RefreshError("the line went dead")

    with monkeypatch.context() as patch:
        patch.setattr(TableauSite, "publish", no_answer)
        assert not location.refresh("torn", keep_days=KEEP_NOTHING, full=True).success
    location.model()
    location.model()
    assert location.refresh("sibling", keep_days=KEEP_NOTHING).success
    assert location.stored() == ([1] if published else []) + [2, 4]
    assert location.refresh("torn", keep_days=KEEP_NOTHING).success
    assert location.stored() == [4]


class Listed(SnapshotIOManager):
    """Notes what is listed of the snapshots."""

    prefixes: ClassVar[list[str]] = []

    @property
    def store(self) -> SnapshotStore:
        """The same store."""
        return SnapshotStore(Listing(LocalStorage(Path(self.root).resolve()), self.prefixes))


class Listing(Proxy):
    def __init__(self, behind: LocalStorage, prefixes: list[str]) -> None:
        super().__init__(behind)
        self._prefixes = prefixes

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name == "list":
            self._prefixes.append(args[0])


def test_a_run_of_many_data_sources_collects_once(location: Location):
    """Prevents: each data source of a run lists every model, in a store of many of both."""
    keys = ["north", "south", "west"]
    location.model()
    location.model()
    location.days_pass()
    snapshots = Listed(root=str(location.root), spark=SparkResource())
    job = dg.Definitions(
        assets=[refresh_assets(location.declaration(key), None) for key in keys],
        resources={**location.resources(), "snapshots": snapshots},
        executor=dg.in_process_executor,
    ).resolve_implicit_global_asset_job_def()
    for runs in (1, 2):
        result = job.execute_in_process(instance=location.instance)
        assert Listed.prefixes.count("") == runs
        assert location.log(result).count("Removed 1 old snapshots") == 2 - runs
    assert location.stored() == [2]


@pytest.mark.slow
def test_only_a_refresh_that_succeeded_collects(location: Location):
    """Prevents: a rehearsal that removes what it was rehearsing with."""
    location.model()
    location.model()
    location.days_pass()
    assert location.refresh("weekly", dry_run=True).success
    assert location.refresh("weekly", build_only=True).success
    location.sandbox.stop()
    assert not location.refresh("weekly").success
    assert location.stored() == [1, 2]


@pytest.mark.slow
def test_a_failure_is_a_warning(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a refresh that failed for a file that nobody needs, after it has published."""
    location.model()
    location.model()
    location.days_pass()
    unlink = Path.unlink

    def no_permission(path: Path, **more: Any) -> None:
        if path.is_relative_to(location.store.folder(MODEL).path):
            raise PermissionError(f"not allowed: {path}")
        unlink(path, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", no_permission)
        result = location.refresh("weekly")
    assert result.success
    assert "Old snapshots were not removed: not allowed" in location.log(result)
    published = location.instance.get_latest_materialization_event(dg.AssetKey("weekly"))
    assert published
    assert published.run_id == result.run_id


@pytest.mark.slow
def test_keep_days_is_for_the_user_to_set(location: Location):
    """Prevents: a setting that does nothing."""
    location.model()
    location.model()
    location.days_pass(80)
    assert location.refresh("weekly", keep_days=85).success
    assert location.stored() == [1, 2]
    assert location.refresh("weekly", keep_days=75).success
    assert location.stored() == [2]
