"""Environments: what TABLEAU_PROJECT_ROOT sets apart, on one instance and one site."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tableau_pipeline.errors import RefusedError
from tableau_pipeline_tests.components.support.location import (
    NOTHING,
    Location,
    decision,
    failure,
)
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


@pytest.mark.parametrize(
    ("root", "project", "said"),
    [
        ("/Staging", "Default", "set it to the path of a project"),
        (ROOT, {"luid": "1234"}, "declare `project` by its path"),
    ],
)
def test_what_cannot_be_placed_is_refused(
    location: Location,
    monkeypatch: pytest.MonkeyPatch,
    root: str,
    project: object,
    said: str,
):
    """Prevents: a data source that an environment publishes outside of its root."""
    monkeypatch.setenv("TABLEAU_PROJECT_ROOT", root)
    with pytest.raises(RefusedError, match=said):
        location.refresh("both", declared={"project": project})


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
