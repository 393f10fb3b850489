"""Data sources of several environments and deployments, and a server with a wrong address."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.resources import TableauServerResource
from tableau_pipeline.resources.services import RUN_CONFIG
from tableau_pipeline_tests.components.support.location import (
    NOTHING,
    Location,
    decision,
    failure,
    metadata_of,
)
from tableau_pipeline_tests.refresh.support.pipeline import session

ROOT = "Staging/pr-123"


def published(location: Location, name: str) -> dict[str, tuple[str, object, frozenset[str]]]:
    """The LUID, stamp and tags of each data source with this name, by its project's path."""
    with session(location.sandbox) as site:
        items = {str(each.id): each for each in site.tsc.projects.all()}

        def path(project: str) -> str:
            item = items[project]
            above = f"{path(item.parent_id)}/" if item.parent_id else ""
            return f"{above}{item.name}"

        found = [site.find_by_luid(str(each.id)) for each in site.tsc.datasources.filter(name=name)]
        return {path(each.project_id): (each.luid, each.stamp, each.tags) for each in found if each}


@pytest.mark.slow
def test_environments_never_touch_each_other(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a pull request moves, renames or changes a data source of production."""
    production, staging = "Default", f"{ROOT}/Default"
    # Even if staging may take over data sources, it must leave production's data source alone.
    location.takeover = True
    location.publish("both")
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


def audited(location: Location, declared: Mapping[str, Any] = NOTHING) -> object:
    """The summary of an audit, which must ignore the data sources of other environments."""
    result = location.audit("both", declared=declared)
    (event,) = (each for each in result.all_events if each.is_successful_output)
    return event.step_output_data.metadata["summary"].value


def test_a_root_that_is_no_path_is_refused(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: an environment publishes a data source outside of its root."""
    monkeypatch.setenv("TABLEAU_PROJECT_ROOT", "/Staging")
    with pytest.raises(RefusedError, match="set it to the path of a project"):
        location.refresh("both")


@pytest.mark.slow
def test_what_a_person_moved_is_not_taken_over(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: production takes over a data source that a user moved from a pull request."""
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
def test_another_deployment_is_refused_until_it_takes_over(
    location: Location, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a deployment takes over unasked, or a refusal does not explain the takeover."""
    location.publish("busy")
    with monkeypatch.context() as patch:
        patch.setenv("PIPELINE_DEPLOYMENT", "second")
        refused = location.refresh("busy")
        assert "published by another deployment" in failure(refused)
        (event,) = refused.get_step_failure_events()
        config = event.step_failure_data.user_failure_data.metadata[RUN_CONFIG].value
        assert config == "ops: {tableau_refresh_busy: {config: {accept: [takeover]}}}"
        assert location.refresh("busy", accept=["takeover"]).success
        assert decision(location.refresh("busy")).startswith("no change")
    location.takeover = True
    assert location.refresh("busy").success


@pytest.mark.slow
def test_a_lost_data_folder(location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a deployment that lost its records publishes twice, or takes over unasked."""
    location.publish("busy")
    luid = location.checkpoint("busy").luid
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path / "new"))
    location.root = tmp_path / "new" / "snapshots"
    location.model()
    message = failure(location.refresh("busy"))
    assert "published by another deployment" in message
    assert "set TABLEAU_TAKEOVER=true for a deployment whose records were lost" in message
    location.takeover = True
    assert location.refresh("busy").success
    assert location.checkpoint("busy").luid == luid
    assert decision(location.refresh("busy")).startswith("no change")
    assert location.wrong("busy") == []


@pytest.mark.slow
def test_who_does_not_name_the_data_folder_is_told_so_first(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a missing variable in a terminal leads a user to TABLEAU_TAKEOVER=true."""
    location.publish("busy")
    monkeypatch.delenv("DAGSTER_HOME")
    # The data folder that the user has named has the records, so the user needs no hint.
    assert decision(location.refresh("busy")).startswith("no change")
    without_snapshots = replace(location, root=location.root / "elsewhere")
    assert "Neither" not in failure(without_snapshots.refresh("busy"))
    monkeypatch.delenv("PIPELINE_DATA_DIR")
    (tmp_path / "terminal").mkdir()
    monkeypatch.chdir(tmp_path / "terminal")
    hint = "Neither PIPELINE_DATA_DIR nor DAGSTER_HOME is set, so this run may look"
    for each in (location, without_snapshots):
        assert failure(each.refresh("busy")).startswith(hint)


@pytest.mark.slow
def test_adoption_keeps_work_in_the_data_directory(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: a run deletes, with its temporary folder, the file that an adoption saved."""
    monkeypatch.setenv("PIPELINE_DATA_DIR", str(tmp_path))
    location.publish("first")
    with session(location.sandbox) as site:
        (item,) = site.tsc.datasources.filter(name="first")
        site.untag(item.id, item.tags)
    adopting = {"name": "first", "adopt": True}
    result = location.refresh("adopter", declared=adopting)
    (file,) = (tmp_path / "kept").iterdir()
    assert str(file) in str(metadata_of(result)["warnings"])
    assert decision(result).startswith("publish (replace): first publish: takes over")


class Elsewhere(Location):
    """A location whose server address comes from the environment."""

    def resources(self, **settings: Any) -> dict[str, dg.ConfigurableResource]:
        tableau = TableauServerResource(
            server_url=dg.EnvVar("TABLEAU_SERVER_URL"), token_name="pipeline", token_value="secret"
        )
        return super().resources(**settings) | {"tableau": tableau}


@pytest.mark.slow
def test_no_secret_of_the_address_is_stored(location: Location, monkeypatch: pytest.MonkeyPatch):
    """Prevents: credentials in TABLEAU_SERVER_URL appear in messages, logs or the database."""
    monkeypatch.setenv("TABLEAU_SERVER_URL", "https://ann:hu5h-hush@tableau.invalid")
    elsewhere = Elsewhere(location.sandbox, location.root, location.instance)
    elsewhere.model()
    message = failure(elsewhere.refresh("shop"))
    assert "TABLEAU_SERVER_URL (https://tableau.invalid) is not" in message
    folder = Path(location.instance.root_directory)
    written = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert message.encode()[:40] in written
    assert b"hu5h-hush" not in written
