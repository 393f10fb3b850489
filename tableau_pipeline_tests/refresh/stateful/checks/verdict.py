"""What a refresh has promised, checked when it has come to its end."""

from dataclasses import dataclass
from typing import Any

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.journal import Claim
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.outcome import Accept
from tableau_pipeline.refresh.decide import NoChange, Refuse
from tableau_pipeline.refresh.planning import Planned
from tableau_pipeline.refresh.report import Built, Done, Refreshed
from tableau_pipeline_tests.refresh.stateful.actors import LATER_RELEASE, Actor, Killed
from tableau_pipeline_tests.refresh.stateful.checks import oracle, refusals
from tableau_pipeline_tests.refresh.stateful.checks.metadata import check_about, check_metadata
from tableau_pipeline_tests.refresh.stateful.checks.observer import can_be_seen
from tableau_pipeline_tests.refresh.stateful.checks.promise import BrokenPromise, require
from tableau_pipeline_tests.refresh.stateful.server.contents import Published, differences, held

Outcome = Done | RefreshError | Killed


@dataclass(frozen=True)
class Start:
    """How things were when a refresh began.

    Attributes:
        versions: the newest of each model.
        tags: those of the data source; `place` is its name and its project, `luid` its LUID.
        later: another process has stored a record of a later release, which is still there.
    """

    versions: dict[str, int]
    tags: frozenset[str]
    place: tuple[str, str] | None = None
    luid: str | None = None
    later: bool = False

    @classmethod
    def of(cls, history: Any, actor: Actor) -> "Start":
        versions = {name: history.store.number(name) for name in history.models}
        found = history.found()
        tags = frozenset(found.tags) if found else frozenset()
        luid = str(found.luid) if found else None
        return cls(versions, tags, _place(history), luid, actor.log.later_at is not None)


def describe(outcome: Outcome) -> str:
    match outcome:
        case Built():
            return "built only"
        case Refreshed(plan=plan) | Planned(plan=plan):
            suspect = outcome.checkpoint.distrust if isinstance(outcome, Refreshed) else None
            return f"{plan.decision}: {plan.reason}{f' (suspect: {suspect})' if suspect else ''}"
        case Killed():
            return "killed"
        case _:
            return f"{type(outcome).__name__}: {outcome}"


def check(history: Any, actor: Actor, start: Start, outcome: Outcome) -> None:
    """Whether a refresh has kept its promise.

    Raises:
        BrokenPromise: it has not.
    """
    if actor.options.dry_run or actor.options.build_only:
        require(not actor.changes, "a dry run has changed something on the server")
        require(not actor.records, "a dry run has recorded something")
    if start.later and not actor.options.build_only and not isinstance(outcome, Killed):
        _check_stopped(actor, outcome)
    check_about(history, actor)
    match outcome:
        case RefusedError():
            refused = [each for each in actor.sendings if each.landed]
            # After an update that somebody interfered with, a file may be refused that repairs it.
            require(not refused or actor.meddled, f"refused, but it has sent something: {outcome}")
            untrue = refusals.untrue(history, actor, str(outcome), tags=start.tags)
            require(not untrue, f"refused, but this is not true: {untrue}")
        case Planned(plan=Refuse() as plan):
            untrue = refusals.untrue(history, actor, plan.reason, tags=start.tags)
            require(not untrue, f"a dry run is refused, but this is not true: {untrue}")
        case RefreshError():
            stopped = [each for each in history.store.damaged if each in str(outcome)]
            require(not stopped, f"a damaged file that it need not read stops it: {outcome}")
        case Refreshed(checkpoint=Checkpoint(distrust=None)):
            _check_green(history, actor, start, outcome)
            check_metadata(history, actor, outcome)
            require(not actor.lost_work, "green, although it has lost the work of people")
            _check_place(history, actor, start, outcome)
        case _:
            pass


def _check_stopped(actor: Actor, outcome: Outcome) -> None:
    """A refresh that does not understand a record does nothing, and names who wrote it."""
    named = isinstance(outcome, RefusedError) and LATER_RELEASE in str(outcome)
    require(named, f"release {LATER_RELEASE} refreshes it, and this is what comes of it: {outcome}")
    require(not actor.changes and not actor.records, "it changes something beside a later release")


def _check_green(history: Any, actor: Actor, start: Start, report: Refreshed) -> None:
    checkpoint = report.checkpoint
    claims = (each.refresh for each in actor.log.records if isinstance(each, Claim))
    if max(claims, default=0) > checkpoint.refresh:
        # Another refresh began right before it recorded its own, and is judged by itself.
        return
    contents = {}
    for name, table in checkpoint.tables.items():
        known = start.versions[table.model]
        is_old = actor.options.metadata_only
        require(
            is_old or table.version >= known, f"{name}: version {table.version}, {known} was there"
        )
        contents[table.model] = history.store.contents[table.model, table.version]
    found = [each for each in history.tableau.datasources() if each.luid == checkpoint.luid]
    holds = held(history.tableau, found[0]) if found else None
    day = actor.day or history.today
    wrong = _wrong(holds, oracle.wanted(actor.declaration, contents, day))
    if not wrong:
        history.ledger.tamperings = [
            each for each in history.ledger.tamperings if each.moment > actor.looked
        ]
        _check_rows(history, actor, report)
        return
    tamperings = history.ledger.tamperings
    looked_at = [each for each in tamperings if each.moment < actor.looked]
    excused = tamperings and not any(can_be_seen(history, each) for each in looked_at)
    if not excused:
        what = "no change" if isinstance(report.plan, NoChange) else "green"
        raise BrokenPromise("\n  ".join([f"{what}, but it is wrong:", *wrong]))
    history.note("... which is wrong, and it could not know")


def _check_place(history: Any, actor: Actor, start: Start, report: Refreshed) -> None:
    """It goes where the declaration says, unless somebody moved it; and no move is unsaid."""
    place, luid = _place(history), str(report.checkpoint.luid)
    declared = actor.declaration.name, actor.declaration.project
    # Without records, it is known by its tag alone, and stays where it is.
    is_kept = actor.wiped == actor.log.wiped
    before, actor.log.placed = actor.log.placed, (luid, *declared) if is_kept else None
    # A name that is free again may lead to another data source than before.
    if actor.disturbed or start.place is None or place is None or start.luid != luid:
        return
    if before == (luid, *start.place):
        require(place == declared, f"it is declared as {declared}, and stays {place}")
    changed = {
        what
        for what, was, now in zip(("rename", "move"), start.place, place, strict=True)
        if was != now
    }
    require(changed == set(report.moves), f"it went to {place}, and reports {report.moves}")


def _place(history: Any) -> tuple[str, str] | None:
    found = history.found()
    return (found.name, found.project_name) if found else None


def _check_rows(history: Any, actor: Actor, report: Refreshed) -> None:
    """No guard for the least rows is skipped, even where nothing changes."""
    if Accept.SHRINK in actor.options.accept:
        return
    for table in actor.declaration.tables:
        rows = report.checkpoint.tables[table.name].content.rows  # ty: ignore
        require(rows >= table.guard.min_rows, f"{table.name} has {rows} rows: {table.guard}")


def _wrong(holds: Published | None, wanted: Published) -> list[str]:
    return ["there is no data source"] if holds is None else differences(holds, wanted)
