"""No dead end: a refresh that nothing disturbs ends well, or is refused with a remedy that works.

However a history went: once nothing disturbs it, three refreshes without a change and three with
one changed row each do not fail, wait for hours, or publish everything again, for ever.
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
from tableau_pipeline_tests.refresh.stateful.actors import Actor
from tableau_pipeline_tests.refresh.stateful.checks import remedies
from tableau_pipeline_tests.refresh.stateful.checks.observer import can_be_seen
from tableau_pipeline_tests.refresh.stateful.checks.promise import require
from tableau_pipeline_tests.refresh.stateful.history import TIMEOUTS, WORKER, History
from tableau_pipeline_tests.refresh.stateful.models.changes import one_value
from tableau_pipeline_tests.refresh.stateful.server.contents import Published
from tableau_pipeline_tests.refresh.support.asked import Asked

_RUNS = 3
# Seconds: between two refreshes all stamps and lists catch up; and what one may wait for beside a
# job, of which looks at it may come late by half of its duration.
_PAUSE, _LONGEST, _OVERSHOOT = 60, 60, 1.5
# A publish in full, as the declaration or the size of the update asks for it.
_AS_DECLARED = re.compile(
    r"\(republish\.(?:after|growth)|republish\.growth\)|exceeds the limit of .* for payloads"
    r"|is larger than the full file"
)


@dataclass(frozen=True)
class Allowed:
    """What refreshes may cost on a site.

    Attributes:
        where: what else has to be so, of the scenario and the data source.
        most: how many changes may be published in full.
    """

    where: Callable[[History], bool]
    most: int = _RUNS


def _not_admin(history: History) -> bool:
    return not history.scenario.admin


def _owned_by_another(history: History) -> bool:
    found = history.found()
    return not history.scenario.admin and bool(found) and found.owner_name != WORKER.name


def _always(history: History) -> bool:
    return True


def _stays(history: History) -> bool:
    return history.scenario.quirks["updates_move_stamp"] == "never"


# What may be slower, by each quirk and its value. With all others, and where a condition does not
# hold, refreshes are green and send what changed alone; nothing may be refused for good.
TABLE: Mapping[tuple[str, Any], Allowed] = {
    ("job_access", "administrators"): Allowed(_not_admin),
    ("job_access", "session-lost"): Allowed(_not_admin),
    ("finished_jobs", "gone"): Allowed(_stays),
    ("updates_by", "owner"): Allowed(_owned_by_another),
    # What a site does is learnt by the first change.
    ("updates_move_stamp", "late"): Allowed(_always, most=1),
    ("job_stamps", "after"): Allowed(_always, most=1),
    ("update_revisions", True): Allowed(_always, most=1),
}


def _most_whole(history: History) -> int:
    allowed = (TABLE.get(each) for each in history.scenario.quirks.items())
    return max((each.most for each in allowed if each and each.where(history)), default=0)


def check_ending(history: History, tally: Counter[str]) -> None:
    """Whether refreshes end well from here on; `tally` counts what became of them.

    Raises:
        BrokenPromise: they do not.
    """
    history.note("Nothing disturbs it any more")
    history.tableau.come_to_rest()
    history.tableau.control.clear()
    history.end_all()
    history.upgrade()
    history.tableau.pass_time(TIMEOUTS.queue + TIMEOUTS.job + 100)
    # What nothing shows, nobody can know.
    hidden = not all(can_be_seen(history, each) for each in history.ledger.tamperings)
    _well(history, Asked(full=hidden), tally)
    for _ in range(1, _RUNS):
        _well(history, Asked(), tally, is_settled=True)
    whole = 0
    for number in range(_RUNS):
        _change(history, number)
        report = _well(history, Asked(), tally, is_settled=True)
        whole += _is_slower(report, tally)
        why = report.reason
        require(whole <= _most_whole(history), f"a row has changed, and it does this: {why}")


def _change(history: History, number: int) -> None:
    """One row of a model becomes another one."""
    tables = history.declaration.tables
    table = tables[number % len(tables)]
    model = history.models[table.model]
    history.note(f"a row of {model.name} changes")
    model.become(one_value(model, number))
    history.store.store(model)
    history.store_feeds()


def _well(
    history: History, options: Asked, tally: Counter[str], *, is_settled: bool = False
) -> None:
    """Refresh, and follow what refusals say, each once."""
    done: set[str] = set()
    while True:
        history.tableau.pass_time(_PAUSE)
        before, actor, began = history.holds(), history.actor(), history.tableau.now
        outcome = history.refresh(actor, options)
        tally["refreshes"] += 1
        _check_wait(history, actor, began)
        if isinstance(outcome, Refreshed):
            _check_report(history, actor, outcome, before, tally, is_settled=is_settled)
            return outcome
        require(isinstance(outcome, RefusedError), f"undisturbed, it fails: {outcome}")
        tally["refused"] += 1
        what, options = remedies.followed(history, str(outcome), options)
        require(bool(what), f"it is refused, and says no remedy: {outcome}")
        require(not what <= done, f"a person did {what}, and it is refused again: {outcome}")
        for each in what:
            tally[f"refused: {each}"] += 1
        done |= what


def _check_wait(history: History, actor: Actor, began: datetime) -> None:
    """Beside its jobs, a refresh waits for next to nothing."""
    jobs = [history.tableau.job(each.job) for each in actor.sendings]
    took = sum(
        (datetime.fromisoformat(job.completed_at) - datetime.fromisoformat(job.created_at)).seconds
        for job in jobs
        if job.completed_at
    )
    waited = (history.tableau.now - began).total_seconds()
    require(
        waited <= took * _OVERSHOOT + _LONGEST, f"it takes {waited:.0f} s, its jobs {took:.0f} s"
    )


def _check_report(
    history: History,
    actor: Actor,
    report: Refreshed,
    before: Published | None,
    tally: Counter[str],
    *,
    is_settled: bool,
) -> None:
    """A green refresh leaves what is wanted, and once all is settled, sends what changed alone."""
    wanted = actor.wanted
    require(history.holds() == wanted, "undisturbed and green, but the rows are not the model's")
    phase = "settled" if is_settled else "first"
    kind = report.plan.decision if report.plan else ""
    if not is_settled:
        tally[f"{phase}: {kind}"] += 1
        return
    distrust = report.checkpoint.distrust if report.checkpoint else "no checkpoint"
    require(distrust is None, f"undisturbed, no update may build on it: {distrust}")
    if before == wanted:
        tally[f"no change: {kind}"] += 1
        require(
            isinstance(report.plan, NoChange) and not report.moves,
            f"nothing has changed, and it does this: {report.decision}: {report.reason}",
        )
        return


def _is_slower(report: Refreshed, tally: Counter[str]) -> bool:
    """Whether a change was published in full that might have been an update elsewhere."""
    if not isinstance(report.plan, Publish):
        tally[f"change: {report.decision}"] += 1
        return False
    is_declared = bool(_AS_DECLARED.search(report.reason))
    why = "as declared" if is_declared else "as the site allows no more"
    tally[f"change: whole, {why}"] += 1
    return not is_declared
