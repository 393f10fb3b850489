"""Data sources that two deployments declare."""

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from tableau_pipeline_tests.components.support.location import (
    Location,
    decision,
    failure,
    metadata_of,
)
from tableau_pipeline_tests.refresh.support.pipeline import session


@pytest.mark.slow
def test_another_instance_is_refused_until_it_takes_over(location: Location):
    """Prevents: two deployments that overwrite each other's rows in turn, all green."""
    location.model()
    assert location.refresh("busy").success
    with dg.instance_for_test() as instance:
        second = replace(location, instance=instance)
        before = location.jobs("busy")
        for config in ({}, {"full": True}, {"accept": ["shrink", "schema", "overwrite"]}):
            message = failure(second.refresh("busy", **config))
            assert "another deployment" in message
            assert "ops: {busy: {config: {accept: [takeover]}}}" in message
        assert location.jobs("busy") == before
        location.model()
        assert second.refresh("busy", accept=["takeover"]).success
        assert second.wrong("busy") == []
        assert decision(second.refresh("busy")).startswith("no change")
        before = location.jobs("busy")
        assert "accept: [takeover]" in failure(location.refresh("busy"))
        assert location.jobs("busy") == before
        # TABLEAU_TAKEOVER, after the records of a deployment were lost.
        location.takeover = True
        assert location.refresh("busy").success


def test_without_a_home_no_takeover_comes_first(
    location: Location, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: TABLEAU_TAKEOVER=true on a laptop, because the instance forgets its own refresh."""
    location.model()
    assert location.refresh("busy").success
    monkeypatch.delenv("DAGSTER_HOME")
    forgetful = replace(location, instance=dg.DagsterInstance.ephemeral())
    assert failure(forgetful.refresh("busy")).startswith("DAGSTER_HOME is not set, so this")
    # Snapshots are elsewhere without it, too.
    elsewhere = replace(forgetful, root=location.root / "elsewhere")
    assert failure(elsewhere.refresh("busy")).startswith("DAGSTER_HOME is not set, so this")


def test_plan_shows_a_rename(location: Location):
    """Prevents: a page that says "no change" of a data source which has another name by now."""
    location.model()
    assert location.refresh("renamed").success
    better = {"name": "Renamed better"}
    looked = location.refresh("renamed", declared=better, dry_run=True)
    run = location.instance.get_run_by_id(looked.run_id)
    assert run is not None
    assert run.tags["tableau/renamed"] == "dry run: rename"
    (event,) = looked.get_asset_observation_events()
    planned = event.asset_observation_data.asset_observation.metadata
    done = metadata_of(location.refresh("renamed", declared=better))
    phrase = 'renamed from "renamed" to "Renamed better"'
    assert str(planned["plan"].value).startswith(f"**rename**: {phrase}")
    assert phrase in str(planned["summary"].value)
    assert done["decision"] == planned["decision"].value == "rename"
    assert done["reason"] == planned["reason"].value
    assert phrase in done["summary"]
    assert done["comparison"] == "not compared: reconcile: never"
    assert location.wrong("renamed", better) == []


@pytest.mark.slow
def test_adoption_keeps_work_in_the_data_directory(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: what was saved before an adoption goes with the temporary folder of its run."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path))
    location.model()
    assert location.refresh("first").success
    with session(location.sandbox) as site:
        (item,) = site.tsc.datasources.filter(name="first")
        site.untag(item.id, item.tags)
    adopting = {"name": "first", "adopt": True}
    result = location.refresh("adopter", declared=adopting)
    (file,) = (tmp_path / "kept").iterdir()
    assert str(file) in str(metadata_of(result)["warnings"])
    assert decision(result).startswith("publish (replace): first publish: takes over")
