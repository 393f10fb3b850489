"""Histories from seeds: the same seed is the same history, step by step."""

import os
import random
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from unittest import mock

from tableau_pipeline.core.fields import MetadataPolicy
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.outcome import Accept
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline_tests.refresh.stateful.checks.ending import check_ending
from tableau_pipeline_tests.refresh.stateful.checks.observer import can_be_seen
from tableau_pipeline_tests.refresh.stateful.checks.promise import BrokenPromise
from tableau_pipeline_tests.refresh.stateful.checks.rehearsal import Rehearsal
from tableau_pipeline_tests.refresh.stateful.history import History, history
from tableau_pipeline_tests.refresh.stateful.models.changes import repaired
from tableau_pipeline_tests.refresh.stateful.scenarios import Scenario, related, scenario
from tableau_pipeline_tests.refresh.stateful.steps import Step, first, quiet, step
from tableau_pipeline_tests.refresh.support.asked import Asked

_STEPS = 4
_TESTS = "tableau_pipeline_tests/refresh/stateful"


@dataclass(frozen=True)
class Case:
    seed: int
    scenario: Scenario
    steps: tuple[Step, ...]
    last: Step

    @classmethod
    def of(cls, seed: int) -> "Case":
        """Draw it; each step has chances of its own, so that one can be left out."""
        steps = [first(Random(f"{seed}/0"))]
        steps += [step(Random(f"{seed}/{n}")) for n in range(1, _STEPS)]
        last = quiet(Random(f"{seed}/quiet"), (seed + seed // 4) % 4)
        return cls(seed, scenario(Random(f"{seed}/world")), tuple(steps), last)


@dataclass(frozen=True)
class Failure:
    """A promise that was broken, and what led to it."""

    case: Case
    error: BaseException
    trace: Sequence[str]

    def __str__(self) -> str:
        lines = "\n".join(self.trace)
        return (
            f"Seed {self.case.seed}: {type(self.error).__name__}: {self.error}\n"
            f"In this scenario: {self.case.scenario}\n{lines}\n"
            f"Replay it: STATEFUL_SEED={self.case.seed} pytest {_TESTS}"
        )


def play(case: Case, tally: Counter[str] | None = None) -> Failure | None:
    """Let a history happen; what is broken, if anything is.

    Args:
        tally: counts what its last, undisturbed refreshes came to.
    """
    trace: list[str] = []
    try:
        with _determined(case.seed), history(case.scenario, Random(f"{case.seed}/while")) as made:
            trace = made.trace
            with mock.patch("tableau_pipeline.publishing.http.monotonic", made.seconds):
                for each in case.steps:
                    _take(made, each)
                check_ending(made, Counter() if tally is None else tally)
                _calm(made)
                made.tableau.pass_time(700)
                _take(made, case.last)
    except (Exception, BrokenPromise) as error:  # noqa: BLE001 - whatever it is
        return Failure(case, error, trace)
    return None


def _take(made: History, each: Step) -> None:
    for happening in each.before:
        made.note(f"{happening}")
        happening(made, None)
    made.store_feeds()
    if each.publisher != "ours":
        # Nobody can know what another deployment has on its way.
        made.tableau.come_to_rest()
    made.note(f"{each}{''.join(f'; {event}' for event in each.events)}")
    options = each.options
    if options.metadata_only and _has_window(made, each.publisher):
        # How many rows a window leaves depends on the day when they were published.
        options = replace(options, metadata_only=False)
    told = Rehearsal.of(made, each.publisher, options) if each.rehearsed else None
    actor = made.actor(publisher=each.publisher, events=each.events)
    outcome = made.refresh(actor, options)
    if told:
        told.check(made, actor, outcome)
    made.upgrade()
    made.tableau.pass_time(made.chance.choice([0, 0, 1, 60]))
    if each.publisher != "ours":
        made.tableau.come_to_rest()


def _has_window(made: History, publisher: str) -> bool:
    """Whether a rolling window is declared, or was when the rows were published."""
    record = read_history(made.logs[publisher].records).recovered.record
    published = record.tables.values() if record else ()
    return any(each.retain for each in made.declaration.tables) or any(
        each.cutoff for each in published
    )


def _calm(made: History) -> None:
    """Without faults, two refreshes are enough."""
    made.note("Calm")
    made.tableau.come_to_rest()
    made.tableau.control.clear()
    made.end_all()
    made.tableau.pass_time(700)
    for model in made.models.values():
        model.become(repaired(model))
        made.store.store(model, again=True)
    made.store_feeds()
    declared = replace(made.declaration, adopt=True, metadata=MetadataPolicy())
    if "v0" not in made.models["t1"].content.schema:
        declared = replace(declared, calculations=())
    columns = [(edge.many, name) for edge in declared.relationships for name, _ in edge.on]
    if not all(column in made.models[table].content.schema for table, column in columns):
        declared = replace(declared, **related(declared.tables, 1, chain=False))
    made.declaration = declared
    for each in made.tableau.datasources():
        ours = made.found() == each and (made.scenario.admin or each.owner_name == "worker")
        if not ours:
            made.other_user.deletes(each)
    # What nothing shows, nobody can know.
    hidden = not all(can_be_seen(made, each) for each in made.ledger.tamperings)
    options = Asked(full=hidden, accept=frozenset(Accept))
    for is_last in (False, True):
        actor = made.actor()
        outcome = made.refresh(actor, options)
        if isinstance(outcome, Refreshed) and made.holds() == actor.wanted:
            return
        if is_last:
            raise BrokenPromise(f"not refreshed in calm: {outcome}")


@contextmanager
def _determined(seed: int) -> Generator[None]:
    """Nothing is left to the chances of the machine."""
    chance = Random(f"{seed}/bytes")
    state = random.getstate()
    random.seed(seed)
    with mock.patch.object(os, "urandom", chance.randbytes):
        try:
            yield
        finally:
            random.setstate(state)
