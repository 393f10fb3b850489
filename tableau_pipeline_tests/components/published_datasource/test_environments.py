"""Environments: what TABLEAU_PROJECT_ROOT sets apart, on one instance and one site."""

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from hypothesis.strategies import booleans, sampled_from

from tableau_pipeline.components.journal import JOURNAL
from tableau_pipeline.core.declaration import TAG_PREFIX
from tableau_pipeline.core.project_root import root_of
from tableau_pipeline.core.server import RemoteDatasource
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline_tests.components.conftest import NewInstance
from tableau_pipeline_tests.components.support.location import (
    NOTHING,
    Location,
    decision,
    failure,
)
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_sandbox.testing import running_sandbox

ROOT = "Staging/pr-123"
ROOTS = ("", ROOT)
roots = sampled_from(ROOTS)


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


class Environments(RuleBasedStateMachine):
    """Refreshes of two environments in turns, and what people and declarations do beside them."""

    make: Callable[[], AbstractContextManager[Location]]

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.location = self.stack.enter_context(self.make())

    def teardown(self) -> None:
        self.stack.close()

    @rule(
        root=roots,
        takeover=booleans(),
        name=sampled_from(["Both", "Better"]),
        project=sampled_from(["Default", "Other"]),
        full=booleans(),
    )
    def refresh(self, root: str, *, takeover: bool, name: str, project: str, full: bool) -> None:
        """No refresh of an environment changes what another one has published."""
        self.location.model()
        self.location.takeover = takeover
        before = self._of_others(root)
        with environment(root):
            declared = {"name": name, "project": project, "create_project": True, "adopt": True}
            self.location.refresh("both", declared=declared, full=full)
        assert self._of_others(root) == before

    @rule()
    def lose_records(self) -> None:
        self.location.instance.wipe_assets([JOURNAL])

    @rule(one=roots, project=sampled_from(["Default", "Other", f"{ROOT}/Default"]))
    def a_person_moves_it(self, one: str, project: str) -> None:
        with session(self.location.sandbox) as site:
            found = [each for each in site.tagged(TAG_PREFIX) if root_in(each) == one]
            if found and (to := site.find_project(project)):
                with suppress(RefreshError):
                    site.move(found[0].luid, project_id=to, name=found[0].name)

    @rule(one=roots)
    def a_person_deletes_it(self, one: str) -> None:
        with session(self.location.sandbox) as site:
            for each in site.tagged(TAG_PREFIX):
                if root_in(each) == one:
                    site.delete(each.luid)

    def _of_others(self, root: str) -> dict[str, object]:
        with session(self.location.sandbox) as site:
            return {
                each.luid: (each.state, each.tags)
                for each in site.tagged(TAG_PREFIX)
                if root_in(each) != root
            }


def root_in(datasource: RemoteDatasource) -> str:
    """The environment that a data source is tagged as."""
    (key,) = (each for each in datasource.tags if each.startswith(TAG_PREFIX))
    return root_of(key)


@contextmanager
def environment(root: str) -> Generator[None]:
    """What runs in it has this root."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TABLEAU_PROJECT_ROOT", root)
        yield


@pytest.mark.slow
def test_whatever_happens_beside_them(
    new_instance: NewInstance,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
):
    """Prevents: some order of refreshes, renames, moves and losses in which one environment takes
    what is another one's."""

    @contextmanager
    def made() -> Generator[Location]:
        folder = tmp_path_factory.mktemp("environments")
        monkeypatch.setenv("PIPELINE_DATA_DIR", str(folder))
        with running_sandbox(folder / "sandbox") as sandbox, new_instance() as instance:
            yield Location(sandbox, folder / "snapshots", instance)

    machine = type("Drawn", (Environments,), {"make": staticmethod(made)})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=12, stateful_step_count=10, deadline=None)
    )
