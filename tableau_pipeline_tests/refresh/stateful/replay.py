"""Draw a history from a seed and play it. The same seed always gives the same history."""

import hashlib
import os
import random
import re
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from unittest import mock

from tableau_pipeline.core.fields import MetadataPolicy
from tableau_pipeline.core.journal_store import owner_here
from tableau_pipeline.outcome import Accept
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline_tests.refresh.stateful.checks.agreement import Agreement
from tableau_pipeline_tests.refresh.stateful.checks.dry_run import DryRun
from tableau_pipeline_tests.refresh.stateful.checks.require import CheckFailed
from tableau_pipeline_tests.refresh.stateful.checks.undisturbed import check_undisturbed
from tableau_pipeline_tests.refresh.stateful.checks.visibility import is_visible
from tableau_pipeline_tests.refresh.stateful.history import History, new_history
from tableau_pipeline_tests.refresh.stateful.models.changes import repaired
from tableau_pipeline_tests.refresh.stateful.scenarios import (
    Scenario,
    related,
    scenario,
    with_change_limits,
)
from tableau_pipeline_tests.refresh.stateful.steps import (
    Step,
    first_step,
    next_step,
    undisturbed_step,
    with_agreement,
    with_filters,
    with_interruption,
    with_rollback,
)
from tableau_pipeline_tests.refresh.support.asked import Asked

# Steps of a history, before the checks at its end.
_STEPS = 4
_TESTS = "tableau_pipeline_tests/refresh/stateful"


@dataclass(frozen=True)
class Case:
    """The scenario and the steps that a seed draws.

    Attributes:
        last: the step after the checks at the end. No event disturbs its refresh.
    """

    seed: int
    scenario: Scenario
    steps: tuple[Step, ...]
    last: Step

    @classmethod
    def of(cls, seed: int) -> "Case":
        """Draw the case of a seed.

        Each step has its own random generator, so a change of one step leaves the others as they
        are.
        """
        steps = [first_step(Random(f"{seed}/0"))]
        steps += [
            with_agreement(
                with_rollback(next_step(Random(f"{seed}/{n}")), Random(f"{seed}/hold {n}")),
                Random(f"{seed}/agreement {n}"),
            )
            for n in range(1, _STEPS)
        ]
        played = with_interruption(steps, Random(f"{seed}/interruption"))
        played = with_filters(played, Random(f"{seed}/who may see rows"))
        last = undisturbed_step(Random(f"{seed}/quiet"), (seed + seed // 4) % 4)
        world = with_change_limits(
            scenario(Random(f"{seed}/world")), Random(f"{seed}/limits of change")
        )
        return cls(seed, world, tuple(played), last)

    def digest(self) -> str:
        """A digest of all that was drawn. Its words are sorted, because sets have no order."""
        words = sorted(re.findall(r"[\w.]+", re.sub(r" at 0x\w+", "", repr(self))))
        return hashlib.sha256(" ".join(words).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Failure:
    """A check that failed, with the case and the trace that led to the failure."""

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
    """Play a history with all checks; return the first failure, or None.

    Args:
        tally: counts what the history meets, and the outcomes of the undisturbed refreshes.
    """
    trace: list[str] = []
    tally = Counter() if tally is None else tally
    try:
        chance = Random(f"{case.seed}/while")
        with _seeded(case.seed), new_history(case.scenario, chance) as history:
            trace, history.met = history.trace, tally
            with mock.patch("tableau_pipeline.publishing.http.monotonic", history.seconds):
                for step in case.steps:
                    _play_step(history, step)
                check_undisturbed(history, tally)
                _check_without_faults(history)
                history.tableau.pass_time(700)
                _play_step(history, case.last)
    except (Exception, CheckFailed) as error:  # noqa: BLE001 - any error fails the history
        return Failure(case, error, trace)
    return None


def _play_step(history: History, step: Step) -> None:
    agreement = Agreement.of(history, step) if step.agreed else None
    for event in step.before:
        history.note(f"{event}")
        history.happen(event)
    history.store_feeds()
    if step.release:
        history.journals["ours"].release()
    if step.rollback is not None:
        _roll_back(history, step.rollback)
    if step.publisher != "ours":
        # The checks cannot follow unfinished requests of several deployments.
        history.tableau.come_to_rest()
    history.note(f"{step}{''.join(f'; {event}' for event in step.during)}")
    options = agreement.options if agreement else step.options
    if options.metadata_only and _has_window(history, step.publisher):
        # The checks expect the rows of today's window, but the published rows may be older.
        options = replace(options, metadata_only=False)
    dry_run = DryRun.of(history, step.publisher, options) if step.after_dry_run else None
    refresh = history.new_refresh(publisher=step.publisher, events=step.during)
    if agreement and options.saved:
        refresh.day = agreement.day
    outcome = history.run(refresh, options)
    if agreement:
        is_quiet = not (step.before or step.during or step.release or step.rollback is not None)
        agreement.check(history, refresh, outcome, is_quiet=is_quiet)
    if dry_run:
        dry_run.check(history, refresh, outcome)
    history.upgrade()
    history.tableau.pass_time(history.chance.choice([0, 0, 1, 60]))
    if step.publisher != "ours":
        history.tableau.come_to_rest()


_ROLLBACK_ACCEPTS = frozenset(Accept) - {Accept.TAKEOVER, Accept.OVERWRITE, Accept.FILTER}


def _roll_back(history: History, number: int) -> None:
    """Roll back to a version with the present declaration. Without such a version, do nothing."""
    journal = history.journals["ours"]
    if journal.later_at is not None or _has_window(history, "ours"):
        return
    versions = [
        checkpoint
        for checkpoint in journal.as_seen_by(owner_here("")).checkpoints()
        if history.declared.get(checkpoint.model_dump_json()) == history.declaration
    ]
    if not versions:
        return
    version = versions[number % len(versions)].refresh
    history.note(f"a person rolls back to version {version}")
    history.met["event: rollback"] += 1
    history.run(history.new_refresh(), Asked(accept=_ROLLBACK_ACCEPTS, rollback=version))


def _has_window(history: History, publisher: str) -> bool:
    """Whether a rolling window is declared, or was declared when the rows were published."""
    journal = history.journals[publisher]
    if journal.later_at is not None:
        # The refresh cannot read these records either, and will do nothing.
        return False
    record = journal.history().recovered.record
    published = record.tables.values() if record else ()
    return any(table.retain for table in history.declaration.tables) or any(
        table.cutoff for table in published
    )


def _check_without_faults(history: History) -> None:
    """Check that one of two refreshes publishes the models after all faults have gone."""
    history.note("Calm")
    history.tableau.come_to_rest()
    history.tableau.control.clear()
    history.end_all_runs()
    history.tableau.pass_time(700)
    for model in history.models.values():
        model.become(repaired(model))
        history.store.store(model, again=True)
    history.store_feeds()
    declared = replace(history.declaration, adopt=True, metadata=MetadataPolicy())
    if "v0" not in history.models["t1"].content.schema:
        declared = replace(declared, calculations=())
    columns = [(edge.many, name) for edge in declared.relationships for name, _ in edge.on]
    if not all(column in history.models[table].content.schema for table, column in columns):
        declared = replace(declared, **related(declared.tables, 1, chain=False))
    history.declaration = declared
    for datasource in history.tableau.datasources():
        may_publish = history.scenario.admin or datasource.owner_name == "worker"
        if history.data_source() != datasource or not may_publish:
            history.other_user.deletes(datasource)
    # A full publish overwrites a change that no refresh can see.
    hidden = not all(is_visible(history, change) for change in history.requests.user_changes)
    options = Asked(full=hidden, accept=frozenset(Accept))
    for is_last in (False, True):
        refresh = history.new_refresh()
        outcome = history.run(refresh, options)
        if isinstance(outcome, Refreshed) and history.published_rows() == refresh.expected:
            return
        if is_last:
            raise CheckFailed(f"not refreshed in calm: {outcome}")


@contextmanager
def _seeded(seed: int) -> Generator[None]:
    """Seed all randomness of the process."""
    chance = Random(f"{seed}/bytes")
    state = random.getstate()
    random.seed(seed)
    with mock.patch.object(os, "urandom", chance.randbytes):
        try:
            yield
        finally:
            random.setstate(state)
