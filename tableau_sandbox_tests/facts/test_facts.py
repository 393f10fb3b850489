"""What is known of real servers holds for the sandbox."""

from collections import Counter
from collections.abc import Generator
from importlib import import_module
from pkgutil import walk_packages

import pytest

from tableau_pipeline_tests.docs.page import page
from tableau_sandbox import rest
from tableau_sandbox.facts.credentials import Credentials, Others
from tableau_sandbox.facts.fact import Fact
from tableau_sandbox.facts.playground import Playground
from tableau_sandbox.facts.registry import FACTS
from tableau_sandbox.facts.run import check_one
from tableau_sandbox.facts.scene import Scene
from tableau_sandbox.facts.sources import Grade
from tableau_sandbox.testing import Sandbox, running_sandbox
from tableau_sandbox.vds.service.api import CALLS as VDS_CALLS
from tableau_sandbox_tests.facts.others import ALICE, OTHERS, VIEWER


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Generator[Playground, None, None]:
    """The project "Default" of a sandbox with one data source, which facts share."""
    folder = tmp_path_factory.mktemp("facts")
    with running_sandbox(folder, users=(ALICE, VIEWER), sites=("second",)) as sandbox:
        credentials = Credentials(token_name=Sandbox.token_name, token_value=Sandbox.token_secret)
        scene = Scene(sandbox.url, credentials, Others(OTHERS))
        advance = lambda: sandbox.advance(1)  # noqa: E731
        with Playground(scene, "Default", pass_a_second=advance) as playground:
            assert playground.shared
            yield playground


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.name)
def test_fact_holds(playground: Playground, fact: Fact):
    """Prevents: the sandbox does something else than a real server is known to do."""
    check_one(fact, playground.scene, playground)


def test_facts_can_be_told_apart():
    """Prevents: a report in which nobody can see what a server does otherwise."""
    assert [name for name, count in Counter(fact.name for fact in FACTS).items() if count > 1] == []
    assert [fact.name for fact in FACTS if not fact.claim.endswith(".")] == []
    assert [fact.name for fact in FACTS if (fact.read is None) == (fact.write is None)] == []


def test_facts_are_about_calls_of_the_sandbox():
    """Prevents: a score for a call that does not exist."""
    modules = [
        import_module(each.name) for each in walk_packages(rest.__path__, f"{rest.__name__}.")
    ]
    routes = [route for module in modules for route in getattr(module, "ROUTES", ())]
    known = {f"{route.method} {route.pattern}" for route in routes} | set(VDS_CALLS)
    assert {fact.endpoint for fact in FACTS} - known == set()


def test_sources_are_documented():
    """Prevents: a page that does not say where a fact comes from, or what nobody knows."""
    sections = page("fidelity.md").sections
    rows = {(row["source"], row["grade"]) for row in sections["Sources"].rows()}
    assert rows == {(fact.source.name, fact.source.grade.value) for fact in FACTS}
    rows_of_choices = sections["What nobody could tell"].rows()
    choices = [(row["fact"], row["the sandbox's choice"]) for row in rows_of_choices]
    assumed = [fact for fact in FACTS if fact.source.grade is Grade.ASSUMED]
    assert choices == [(fact.name, fact.claim) for fact in assumed]
