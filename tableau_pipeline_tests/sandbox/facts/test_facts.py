"""What is known of real servers holds for the sandbox."""

from collections import Counter
from collections.abc import Generator

import pytest

from tableau_pipeline.sandbox.facts.fact import Fact
from tableau_pipeline.sandbox.facts.playground import Playground
from tableau_pipeline.sandbox.facts.registry import FACTS
from tableau_pipeline.sandbox.facts.run import check_one
from tableau_pipeline.sandbox.facts.scene import Credentials, Scene
from tableau_pipeline.sandbox.testing import Sandbox, running_sandbox


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Generator[Playground, None, None]:
    """The project "Default" of a sandbox with one data source, which facts share."""
    with running_sandbox(tmp_path_factory.mktemp("facts")) as sandbox:
        scene = Scene(
            sandbox.url,
            Credentials(token_name=Sandbox.token_name, token_value=Sandbox.token_secret),
        )
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
