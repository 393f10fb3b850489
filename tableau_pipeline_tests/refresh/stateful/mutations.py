"""Refreshes that lack one of their safeguards: histories must notice."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from tableau_pipeline.refresh.claim import Claimed
from tableau_pipeline.refresh.observe import Observer, Recovery, Window
from tableau_pipeline.refresh.reconcile import Reconciler, Reconciliation
from tableau_pipeline_tests.refresh.stateful.replay import Case, Failure, play


def _without(owner: type, name: str, answer: Any = None) -> AbstractContextManager:
    """One function is gone; whoever calls it gets this answer."""
    return mock.patch.object(owner, name, return_value=answer)


# The last look before a sending is not among them: histories excuse what others do at that moment.
# `deliver/test_changed_hands_while_sending.py` fails without it.
MUTATIONS: dict[str, Callable[[], AbstractContextManager]] = {
    "claim": lambda: mock.patch("tableau_pipeline.refresh.claim.live_claims", return_value=[]),
    "fence": lambda: _without(Claimed, "check_fence"),
    "job window": lambda: _without(Window, "covers", True),
    "guard without a base": lambda: _without(Observer, "_counted", {}),
    "wait for an unknown sending": lambda: _without(Recovery, "_wait_for_unknown"),
    "reconciliation of an unverified base": lambda: _without(Reconciler, "judge", Reconciliation()),
}


def first_failure(name: str, seeds: Iterable[int]) -> Failure | None:
    """Of the histories without this safeguard, the first one that a promise is broken in."""
    with MUTATIONS[name]():
        return next(filter(None, (play(Case.of(seed)) for seed in seeds)), None)
