"""Refreshes that lack one of their safeguards: histories must notice."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

from tableau_pipeline.core.checkpoint import Record
from tableau_pipeline.extracts.builder import Builder
from tableau_pipeline.refresh.claim import Claimed
from tableau_pipeline.refresh.observe import Observer, Recovery, Window
from tableau_pipeline.refresh.plan import Accept
from tableau_pipeline.refresh.published import Keeper
from tableau_pipeline.refresh.reconcile import Reconciler, Reconciliation
from tableau_pipeline.refresh.refresh import Attempt
from tableau_pipeline.refresh.report import Report
from tableau_pipeline_tests.refresh.stateful import journals
from tableau_pipeline_tests.refresh.stateful.replay import Case, Failure, play


def _without(owner: type, name: str, answer: Any = None) -> AbstractContextManager:
    """One function is gone; whoever calls it gets this answer."""
    return mock.patch.object(owner, name, return_value=answer)


def _newest(records: Sequence[Record]) -> Sequence[Record]:
    return records[-50:]


def _without_refusals() -> AbstractContextManager:
    dry_run = Attempt.dry_run

    def lenient(attempt: Attempt) -> Report:
        attempt._options = replace(attempt._options, accept=frozenset(Accept))
        return dry_run(attempt)

    return mock.patch.object(Attempt, "dry_run", lenient)


# The last look before a sending is not among them: histories excuse what others do at that moment.
# `deliver/test_changed_hands_while_sending.py` fails without it.
MUTATIONS: dict[str, Callable[[], AbstractContextManager]] = {
    "claim": lambda: mock.patch("tableau_pipeline.refresh.claim.live_claims", return_value=[]),
    "fence": lambda: _without(Claimed, "check_fence"),
    "job window": lambda: _without(Window, "covers", True),
    "guard without a base": lambda: _without(Observer, "_counted", {}),
    "wait for an unknown sending": lambda: _without(Recovery, "_wait_for_unknown"),
    "records however old": lambda: mock.patch.object(journals, "needed", _newest),
    "saved work of other users": lambda: _without(Keeper, "keep", "it was saved"),
    "other key of a data source": lambda: _without(Observer, "_other_key"),
    "whole publish if a base is damaged": lambda: _without(Builder, "_find_damage", False),
    "refusals of a dry run": _without_refusals,
    "reconciliation of an unverified base": lambda: _without(Reconciler, "judge", Reconciliation()),
}


def first_failure(name: str, seeds: Iterable[int]) -> Failure | None:
    """Of the histories without this safeguard, the first one that a promise is broken in."""
    with MUTATIONS[name]():
        return next(filter(None, (play(Case.of(seed)) for seed in seeds)), None)
