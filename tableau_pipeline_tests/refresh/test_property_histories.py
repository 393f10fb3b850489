"""The heart of the product, over random histories: what is published equals the models."""

import sys
from collections.abc import Generator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from tableau_pipeline.refresh import send, waiting
from tableau_pipeline_tests.refresh.histories_history import History
from tableau_pipeline_tests.refresh.histories_settings import Sandboxes
from tableau_pipeline_tests.refresh.histories_steps import Step, calm, change, store_feeds
from tableau_pipeline_tests.refresh.histories_strategies import first, steps
from tableau_pipeline_tests.refresh.histories_worlds import World, worlds

# The same ones each time: a failure is to be the fault of the change that it is found on.
SOME = settings(
    deadline=None,
    derandomize=True,
    stateful_step_count=7,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)


class Histories(RuleBasedStateMachine):
    """Each step changes some rows and refreshes, or something happens to server and records."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        super().__init__()
        self._sandboxes = sandboxes
        self._folder = TemporaryDirectory()

    @initialize(world=worlds, first=first)
    def begin(self, world: World, first: list) -> None:
        self.world = world
        self.history = History.of(
            world, self._sandboxes.of(world.setting), Path(self._folder.name), uuid4().hex
        )
        for model, rows in zip(self.history.models.values(), first, strict=True):
            change(self.history, model, rows, again=True)
        store_feeds(self.history)

    @rule(step=steps)
    def refresh(self, step: Step) -> None:
        step(self.history)

    def teardown(self) -> None:
        try:
            if hasattr(self, "history") and sys.exc_info()[0] is None:
                calm(self.history)
        finally:
            if hasattr(self, "history"):
                self.history.source.close()
            self._folder.cleanup()


@pytest.fixture(scope="module")
def sandboxes(tmp_path_factory: pytest.TempPathFactory) -> Generator[Sandboxes]:
    with Sandboxes(tmp_path_factory.mktemp("histories")) as running:
        yield running


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_FIRST_LOOKS", 100)
    monkeypatch.setattr(send, "_STAMP_PAUSE", 0.01)


@pytest.mark.timeout(900)  # a failed history takes its time to shrink
def test_histories(sandboxes: Sandboxes):
    """Prevents: a data source that is not what its models are, and nobody notices."""
    machine = partial(Histories, sandboxes)
    run_state_machine_as_test(machine, settings=settings(SOME, max_examples=4))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "part", [pytest.param(n, marks=pytest.mark.xdist_group(f"histories {n}")) for n in range(4)]
)
def test_many_histories(sandboxes: Sandboxes, part: int):
    """Prevents: the same, where it takes a rare combination."""
    machine = seed(part)(partial(Histories, sandboxes))
    run_state_machine_as_test(machine, settings=settings(SOME, max_examples=125))
