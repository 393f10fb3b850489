"""The checks at the end of a history: undisturbed refreshes succeed, or name a remedy that works.

Three refreshes run without a change, and three refreshes with one changed row each. Whatever has
happened before, no refresh may fail or wait for hours. Refreshes may not publish everything again
for ever.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.decide import NoChange, Publish
from tableau_pipeline.refresh.report import Refreshed
from tableau_pipeline_tests.refresh.stateful.checks import remedies
from tableau_pipeline_tests.refresh.stateful.checks.outcome import Outcome
from tableau_pipeline_tests.refresh.stateful.checks.require import require
from tableau_pipeline_tests.refresh.stateful.checks.visibility import is_visible
from tableau_pipeline_tests.refresh.stateful.history import TIMEOUTS, WORKER, History
from tableau_pipeline_tests.refresh.stateful.models.changes import one_value
from tableau_pipeline_tests.refresh.stateful.refreshes import Refresh
from tableau_pipeline_tests.refresh.stateful.server.contents import Rows
from tableau_pipeline_tests.refresh.support.asked import Asked

_RUNS = 3
# Seconds between two refreshes, so that all time stamps and lists catch up.
_PAUSE = 60
# A refresh may see the end of a job late, by half of the job's duration. `_LONGEST` is the
# time in seconds that a refresh may wait without a job.
_OVERSHOOT = 1.5
_LONGEST = TIMEOUTS.listing * _OVERSHOOT
# The reasons for a full publish that come from the declaration or the size of the update.
_AS_DECLARED = re.compile(
    r"\(republish\.(?:after|growth)|republish\.growth\)|exceeds the limit of .* for payloads"
    r"|is larger than the full file"
)


@dataclass(frozen=True)
class Allowed:
    """A rule for sites on which refreshes may be slower.

    Attributes:
        where: the condition for the rule.
        most: how many changes may be published in full.
    """

    where: Callable[[History], bool]
    most: int = _RUNS


def _not_admin(history: History) -> bool:
    return not history.scenario.admin


def _owned_by_another(history: History) -> bool:
    datasource = history.data_source()
    is_others = bool(datasource) and datasource.owner_name != WORKER.name
    return not history.scenario.admin and is_others


def _always(history: History) -> bool:
    return True


def _stays(history: History) -> bool:
    return history.scenario.quirks["updates_move_stamp"] == "never"


# The rules for slower sites, by quirk and value. On all other sites, refreshes succeed and send
# only the changed rows.
TABLE: Mapping[tuple[str, Any], Allowed] = {
    ("job_access", "administrators"): Allowed(_not_admin),
    ("job_access", "session-lost"): Allowed(_not_admin),
    ("finished_jobs", "gone"): Allowed(_stays),
    ("updates_by", "owner"): Allowed(_owned_by_another),
    # Refreshes learn the behaviour of the site from the first change.
    ("updates_move_stamp", "late"): Allowed(_always, most=1),
    ("job_stamps", "after"): Allowed(_always, most=1),
    ("update_revisions", True): Allowed(_always, most=1),
}


def _most_full(history: History) -> int:
    """How many changes may be published in full."""
    rules = (TABLE.get(quirk) for quirk in history.scenario.quirks.items())
    # A site may have several such quirks. Refreshes learn each quirk from a change.
    return sum(rule.most for rule in rules if rule and rule.where(history))


def check_undisturbed(history: History, tally: Counter[str]) -> None:
    """Check that refreshes succeed from here on.

    Args:
        tally: counts the outcomes of the refreshes.

    Raises:
        CheckFailed: a refresh does not succeed.
    """
    history.note("Nothing disturbs the refreshes any more")
    history.tableau.come_to_rest()
    history.tableau.control.clear()
    history.end_all_runs()
    history.journals["ours"].release()
    history.upgrade()
    history.tableau.pass_time(TIMEOUTS.queue + TIMEOUTS.job + 100)
    # A full publish overwrites a change that no refresh can see.
    hidden = not all(is_visible(history, change) for change in history.requests.user_changes)
    _refresh(history, Asked(full=hidden), tally)
    for _ in range(1, _RUNS):
        _refresh(history, Asked(), tally, is_settled=True)
    full = 0
    for number in range(_RUNS):
        _change(history, number)
        report = _refresh(history, Asked(), tally, is_settled=True)
        full += _is_slower(report, tally)
        reason = report.reason
        require(full <= _most_full(history), f"a row has changed, but published in full: {reason}")


def _change(history: History, number: int) -> None:
    """Change one row of a model."""
    tables = history.declaration.tables
    table = tables[number % len(tables)]
    model = history.models[table.model]
    history.note(f"a row of {model.name} changes")
    model.become(one_value(model, number))
    history.store.store(model)
    history.store_feeds()


def _refresh(
    history: History, options: Asked, tally: Counter[str], *, is_settled: bool = False
) -> Refreshed:
    """Refresh until a refresh succeeds. Follow each remedy that a refusal names, once."""
    done: set[str] = set()
    while True:
        history.tableau.pass_time(_PAUSE)
        before, refresh = history.published_rows(), history.new_refresh()
        began = history.tableau.now
        outcome = history.run(refresh, options)
        tally["refreshes"] += 1
        _check_wait(history, refresh, began)
        if isinstance(outcome, Refreshed):
            _check_report(history, refresh, outcome, before, tally, is_settled=is_settled)
            return outcome
        if "lost work" not in done and _was_lost(history, outcome):
            done.add("lost work")
            continue
        require(isinstance(outcome, RefusedError), f"an undisturbed refresh fails: {outcome}")
        tally["refused"] += 1
        followed, options = remedies.follow(history, str(outcome), options)
        require(bool(followed), f"a refusal names no remedy: {outcome}")
        require(
            not followed <= done, f"a person did {followed}, but the refusal is repeated: {outcome}"
        )
        for remedy in followed:
            tally[f"refused: {remedy}"] += 1
        done |= followed


def _was_lost(history: History, outcome: Outcome) -> bool:
    """Whether a refresh failed because the server's replace has dropped users' metadata."""
    is_such = history.scenario.quirks["replace"] == "like-overwrite"
    return is_such and "which should keep the metadata" in str(outcome)


def _check_wait(history: History, refresh: Refresh, began: datetime) -> None:
    """Check that a refresh takes hardly longer than its jobs."""
    jobs = [history.tableau.job(request.job) for request in refresh.requests]
    took = sum(
        (datetime.fromisoformat(job.completed_at) - datetime.fromisoformat(job.created_at)).seconds
        for job in jobs
        if job.completed_at
    )
    waited = (history.tableau.now - began).total_seconds()
    # After each publish, even a failed one, lists may show the new data source late.
    publishes = sum(request.kind == "publish_datasource" for request in refresh.requests)
    allowed = took * _OVERSHOOT + _LONGEST * max(1, publishes)
    require(waited <= allowed, f"a refresh takes {waited:.0f} s, its jobs {took:.0f} s")


def _check_report(
    history: History,
    refresh: Refresh,
    report: Refreshed,
    before: Rows | None,
    tally: Counter[str],
    *,
    is_settled: bool,
) -> None:
    """Check that a refresh left the expected rows, and did nothing if nothing had changed.

    Args:
        before: the rows before the refresh.
        is_settled: an undisturbed refresh came before.
    """
    rows = history.published_rows()
    require(rows == refresh.expected, "undisturbed and green, but the rows are not the model's")
    phase = "settled" if is_settled else "first"
    kind = report.plan.decision if report.plan else ""
    if not is_settled:
        tally[f"{phase}: {kind}"] += 1
        return
    distrust = report.checkpoint.distrust if report.checkpoint else "no checkpoint"
    require(distrust is None, f"no update may build on an undisturbed refresh: {distrust}")
    if before == refresh.expected:
        tally[f"no change: {kind}"] += 1
        require(
            isinstance(report.plan, NoChange) and not report.moves,
            f"nothing has changed, but the refresh acts: {report.decision}: {report.reason}",
        )
        return


def _is_slower(report: Refreshed, tally: Counter[str]) -> bool:
    """Whether a refresh published in full although it would send an update on another site."""
    if not isinstance(report.plan, Publish):
        tally[f"change: {report.decision}"] += 1
        return False
    is_declared = bool(_AS_DECLARED.search(report.reason))
    reason = "as declared" if is_declared else "as the site allows no more"
    tally[f"change: whole, {reason}"] += 1
    return not is_declared
