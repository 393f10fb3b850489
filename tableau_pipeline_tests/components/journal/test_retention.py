"""Which snapshots a refresh leaves, as Dagster runs it."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tableau_pipeline.core.declaration import Table
from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.components.support.location import MODEL, Location
from tableau_pipeline_tests.refresh.support.models import flights

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


@pytest.mark.slow
def test_only_a_refresh_that_succeeded_collects(location: Location):
    """Prevents: a rehearsal that removes what it was rehearsing with."""
    location.model()
    location.model()
    location.days_pass()
    assert location.refresh("weekly", dry_run=True).success
    assert location.refresh("weekly", publish=False).success
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


@pytest.mark.slow
def test_a_base_that_was_lost_costs_a_publish_in_full(location: Location):
    """Prevents: a refresh that fails, or guesses, because somebody emptied the store."""
    location.model()
    assert location.refresh("weekly").success
    location.model()
    (location.root / location.store.manifest(MODEL, 1)).unlink()
    assert location.refresh("weekly").success
    assert location.wrong("weekly") == []
    # The base is there again.
    location.model(flights(9))
    assert location.refresh("weekly", declared={"tables": (Table("flights", MODEL),)}).success
    assert location.wrong("weekly") == []
