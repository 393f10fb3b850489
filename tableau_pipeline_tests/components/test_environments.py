"""Data sources that environments or deployments share, and a server whose address is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.resources import TableauServerResource
from tableau_pipeline_tests.components.support.location import (
    NOTHING,
    Location,
    decision,
    failure,
    metadata_of,
)
from tableau_pipeline_tests.refresh.support.models import flights
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_sandbox.testing import running_sandbox

ROOT = "Staging/pr-123"


def published(location: Location, name: str) -> dict[str, tuple[str, object, frozenset[str]]]:
    """LUID, stamp and tags of the data sources with this name, by the path of their project."""
    with session(location.sandbox) as site:
        items = {str(each.id): each for each in site.tsc.projects.all()}

        def path(project: str) -> str:
            item = items[project]
            above = f"{path(item.parent_id)}/" if item.parent_id else ""
            return f"{above}{item.name}"

        found = [site.find_by_luid(str(each.id)) for each in site.tsc.datasources.filter(name=name)]
        return {path(each.project_id): (each.luid, each.stamp, each.tags) for each in found if each}


def test_environments_never_touch_each_other(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a pull request that moves, renames or changes what production has published."""
    production, staging = "Default", f"{ROOT}/Default"
    # Whoever may take everything over must not take production.
    location.takeover = True
    location.model()
    assert location.refresh("both").success
    before = published(location, "both")
    assert before.keys() == {production}
    location.model()

    monkeypatch.setenv("TABLEAU_PROJECT_ROOT", ROOT)
    assert decision(location.refresh("both")).startswith("publish (create)")
    assert decision(location.refresh("both")).startswith("no change")
    after = published(location, "both")
    assert after.keys() == {production, staging}
    assert after[production] == before[production]
    assert f"tableau-pipeline:both@{ROOT}" in after[staging][2]
    renamed = {"name": "Better"}
    assert decision(location.refresh("both", declared=renamed)).startswith("rename")
    assert published(location, "both") == before
    assert location.wrong("both", renamed) == []
    assert audited(location, renamed) == "1 unchanged"

    monkeypatch.delenv("TABLEAU_PROJECT_ROOT")
    mine = published(location, "Better")
    assert decision(location.refresh("both", full=True)).startswith("publish (replace)")
    assert published(location, "Better") == mine
    assert published(location, "both")[production][0] == before[production][0]
    assert location.wrong("both") == []
    assert audited(location) == "1 unchanged"


@pytest.mark.slow
def test_environments_on_two_servers(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: refreshes of staging and production, on servers of their own and one instance,
    that take the other's records for theirs."""
    location.model()
    assert location.refresh("both").success
    before = published(location, "both")
    with running_sandbox(tmp_path / "staging") as sandbox:
        staging = replace(location, sandbox=sandbox)
        for declared in ({}, {"name": "Better"}):
            location.model()
            with monkeypatch.context() as patch:
                patch.setenv("TABLEAU_PROJECT_ROOT", ROOT)
                assert staging.refresh("both", declared=declared).success
                assert staging.wrong("both", declared) == []
                assert decision(staging.refresh("both", declared=declared)).startswith("no change")
            assert decision(location.refresh("both")).startswith("update")
            assert location.wrong("both") == []
        assert published(staging, "Better").keys() == {f"{ROOT}/Default"}
        assert published(staging, "both") == {}
    assert [each[0] for each in published(location, "both").values()] == [before["Default"][0]]


def audited(location: Location, declared: Mapping[str, Any] = NOTHING) -> object:
    """The summary of an audit: what other environments publish is not among it."""
    result = location.audit("both", declared=declared)
    (event,) = (each for each in result.all_events if each.is_successful_output)
    return event.step_output_data.metadata["summary"].value


def test_a_root_that_is_no_path_is_refused(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a data source that an environment publishes outside of its root."""
    monkeypatch.setenv("TABLEAU_PROJECT_ROOT", "/Staging")
    with pytest.raises(RefusedError, match="set it to the path of a project"):
        location.refresh("both")


def test_what_a_person_moved_is_not_taken_over(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: production that goes on with what a pull request has published, because it has the
    right name in the right project."""
    location.model()
    location.takeover = True
    with monkeypatch.context() as patch:
        patch.setenv("TABLEAU_PROJECT_ROOT", ROOT)
        assert location.refresh("both").success
    (luid, *_) = published(location, "both")[f"{ROOT}/Default"]
    with session(location.sandbox) as site:
        site.move(luid, name="both", project_id=site.project("Default", create=False))
    before = published(location, "both")
    message = failure(location.refresh("both", declared={"adopt": True}))
    assert "is published by another environment" in message
    assert published(location, "both") == before


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


@dataclass
class Elsewhere(Location):
    """A location whose server and token are those of the environment."""

    def resources(self, **settings: Any) -> dict[str, dg.ConfigurableResource]:
        tableau = TableauServerResource(
            server_url=dg.EnvVar("TABLEAU_SERVER_URL"),
            token_name="pipeline",
            token_value=dg.EnvVar("TABLEAU_TOKEN_VALUE"),
        )
        return super().resources(**settings) | {"tableau": tableau}


@pytest.fixture
def elsewhere(location: Location, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    monkeypatch.setenv("TABLEAU_TOKEN_VALUE", location.sandbox.token_secret)
    found = Elsewhere(location.sandbox, location.root, location.instance)
    found.model(flights(8))
    return found


def written(location: Location) -> bytes:
    """All that Dagster has stored."""
    folder = Path(location.instance.root_directory)
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_no_secret_of_the_address_is_stored(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch):
    """Prevents: credentials in TABLEAU_SERVER_URL land in messages, logs and Dagster's database."""
    monkeypatch.setenv("TABLEAU_SERVER_URL", "https://ann:hu5h-hush@tableau.invalid")
    message = failure(elsewhere.refresh("shop"))
    assert "TABLEAU_SERVER_URL (https://tableau.invalid) is not the address" in message
    assert message.encode()[:40] in written(elsewhere)
    assert b"hu5h-hush" not in written(elsewhere)
