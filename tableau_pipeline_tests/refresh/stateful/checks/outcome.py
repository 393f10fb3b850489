"""The checks at the end of a refresh: its outcome, and the data source that it leaves."""

from dataclasses import dataclass
from typing import Any

from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.errors import HeldError, RefreshError, RefusedError
from tableau_pipeline.outcome import Accept
from tableau_pipeline.refresh.decide import NoChange, Refuse
from tableau_pipeline.refresh.planning import Planned
from tableau_pipeline.refresh.report import Built, Done, Refreshed
from tableau_pipeline_tests.refresh.stateful.checks import refusals
from tableau_pipeline_tests.refresh.stateful.checks.expected import expected_rows
from tableau_pipeline_tests.refresh.stateful.checks.metadata import check_metadata, check_properties
from tableau_pipeline_tests.refresh.stateful.checks.require import CheckFailed, require
from tableau_pipeline_tests.refresh.stateful.checks.visibility import is_visible
from tableau_pipeline_tests.refresh.stateful.journals import LATER_RELEASE
from tableau_pipeline_tests.refresh.stateful.refreshes import Killed, Refresh
from tableau_pipeline_tests.refresh.stateful.server.contents import Rows, differences, rows_of

Outcome = Done | RefreshError | Killed


@dataclass(frozen=True)
class Start:
    """The state when a refresh began.

    Attributes:
        versions: the newest version of each model.
        tags: the tags of the data source.
        place: the name and the project of the data source.
        luid: the LUID of the data source.
        later: the journal has a record of a later release.
        held: a hold stops the refreshes of the data source.
    """

    versions: dict[str, int]
    tags: frozenset[str]
    place: tuple[str, str] | None = None
    luid: str | None = None
    later: bool = False
    held: bool = False

    @classmethod
    def of(cls, history: Any, refresh: Refresh) -> "Start":
        versions = {name: history.store.number(name) for name in history.models}
        datasource = history.data_source()
        tags = frozenset(datasource.tags) if datasource else frozenset()
        luid = str(datasource.luid) if datasource else None
        later, held = refresh.journal.later_at is not None, refresh.journal.is_held
        return cls(versions, tags, _place(history), luid, later, held)


def describe(outcome: Outcome) -> str:
    """Describe an outcome in one line for the trace."""
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


def kinds_of(outcome: Outcome) -> list[str]:
    """The kinds of an outcome: its decision or error, its refusals and its doubt."""
    match outcome:
        case RefusedError(refusals=refusals) | Planned(plan=Refuse(refusals=refusals)):
            return [f"refusal: {refusal.code}" for refusal in refusals]
        case Refreshed(planned=planned) | (Planned() as planned):
            doubt = planned.base.distrust
            status = outcome.decision if isinstance(outcome, Refreshed) else "planned"
            return [f"status: {status}", *([f"doubt: {doubt.code}"] if doubt else [])]
        case Built():
            return ["status: built"]
        case _:
            return [f"error: {type(outcome).__name__}"]


def check_outcome(history: Any, refresh: Refresh, start: Start, outcome: Outcome) -> None:
    """Check the outcome of a refresh.

    A successful refresh must have published the rows of its models. A refused refresh must have
    sent nothing, and its reasons must be true. A dry run must have changed nothing.

    Raises:
        CheckFailed: the outcome breaks one of these rules.
    """
    if refresh.options.dry_run or refresh.options.build_only:
        require(not refresh.change_count, "a dry run has changed something on the server")
        require(not refresh.record_count, "a dry run has recorded something")
    if start.later and not refresh.options.build_only and not isinstance(outcome, Killed):
        _check_stopped(refresh, outcome)
    check_properties(history, refresh)
    _check_hold(refresh, start, outcome)
    if isinstance(outcome, Refreshed):
        _check_filters(history, refresh, outcome)
    match outcome:
        case RefusedError():
            took_effect = any(request.took_effect for request in refresh.requests)
            require(not took_effect, f"refused, but it has sent something: {outcome}")
            untrue = refusals.untrue_lines(history, refresh, str(outcome), tags=start.tags)
            require(not untrue, f"refused, but this is not true: {untrue}")
        case Planned(plan=Refuse() as plan):
            untrue = refusals.untrue_lines(history, refresh, plan.reason, tags=start.tags)
            require(not untrue, f"a dry run is refused, but this is not true: {untrue}")
        case RefreshError():
            damaged = any(path in str(outcome) for path in history.store.damaged)
            require(not damaged, f"stopped by a damaged file that need not be read: {outcome}")
        case Refreshed(checkpoint=Checkpoint(distrust=None)):
            _check_green(history, refresh, start, outcome)
            check_metadata(history, refresh, outcome)
            require(not refresh.lost_edits, "green, although it has lost the work of people")
            _check_place(history, refresh, start, outcome)
        case _:
            pass


def _check_stopped(refresh: Refresh, outcome: Outcome) -> None:
    """Check that a refresh that cannot read a record does nothing and names the later release."""
    named = isinstance(outcome, RefusedError) and LATER_RELEASE in str(outcome)
    require(named, f"no refusal because of release {LATER_RELEASE}, but: {outcome}")
    changes = refresh.change_count or refresh.record_count
    require(not changes, "something was changed after the record of a later release")


def _check_hold(refresh: Refresh, start: Start, outcome: Outcome) -> None:
    """Check that a held data source stays as it is, and that a rollback leaves a hold."""
    if isinstance(outcome, HeldError):
        require(start.held, f"the data source is not held, but the outcome is: {outcome}")
        require(not refresh.change_count, "the data source is held, but something was changed")
    if refresh.options.rollback is None:
        is_green = isinstance(outcome, Refreshed)
        require(not (start.held and is_green), "the data source is held, but was refreshed")
    elif isinstance(outcome, Refreshed) or any(r.took_effect for r in refresh.requests):
        require(refresh.journal.is_held, "the data source was rolled back, but is not held")


def _check_filters(history: Any, refresh: Refresh, report: Refreshed) -> None:
    """Check that no row filter is missing since the last refresh, and note the filters."""
    published = [d for d in history.tableau.datasources() if d.luid == report.checkpoint.luid]
    present = {item for d in published for item in history.metadata_of(d) if item[0] == "filter"}
    gone = refresh.journal.filters - present - refresh.touched_by_users
    is_accepted = Accept.FILTER in refresh.options.accept
    require(is_accepted or not gone, f"users may see all rows because {gone} is gone")
    refresh.journal.filters = frozenset(present)


def _check_green(history: Any, refresh: Refresh, start: Start, report: Refreshed) -> None:
    """Check that the data source has the models' rows, unless a change was invisible."""
    checkpoint = report.checkpoint
    is_readable = refresh.journal.later_at is None
    if is_readable and refresh.journal.history().refresh > checkpoint.refresh:
        # Another refresh began right before this refresh recorded its checkpoint. The check of the
        # other refresh comes later.
        return
    contents = {}
    for name, table in checkpoint.tables.items():
        newest = start.versions[table.model]
        require(
            refresh.options.is_pinned or table.version >= newest,
            f"{name}: version {table.version} instead of {newest}",
        )
        contents[table.model] = history.store.contents[table.model, table.version]
    published = [d for d in history.tableau.datasources() if d.luid == checkpoint.luid]
    rows = rows_of(history.tableau, published[0]) if published else None
    day = refresh.day or history.today
    wrong = _wrong(rows, expected_rows(refresh.declaration, contents, day))
    changes = history.requests.user_changes
    if not wrong:
        later = [change for change in changes if change.moment > refresh.looked_at]
        history.requests.user_changes = later
        _check_rows(history, refresh, report)
        return
    earlier = [change for change in changes if change.moment < refresh.looked_at]
    excused = changes and not any(is_visible(history, change) for change in earlier)
    if not excused:
        what = "no change" if isinstance(report.plan, NoChange) else "green"
        raise CheckFailed("\n  ".join([f"{what}, but it is wrong:", *wrong]))
    history.note("... which is wrong, and the refresh could not know")


def _check_place(history: Any, refresh: Refresh, start: Start, report: Refreshed) -> None:
    """Check the reported moves and, if no user moved the data source, its place."""
    place, luid = _place(history), str(report.checkpoint.luid)
    declared = refresh.declaration.name, refresh.declaration.project
    # After a wipe, a refresh finds the data source only by its tag, and does not move it.
    has_records = refresh.wiped == refresh.journal.wiped
    before = refresh.journal.placed
    refresh.journal.placed = (luid, *declared) if has_records else None
    # A name that is free again may lead to another data source than before.
    if refresh.disturbed or start.place is None or place is None or start.luid != luid:
        return
    if before == (luid, *start.place):
        require(place == declared, f"declared at {declared}, but stays at {place}")
    changed = {
        what
        for what, was, now in zip(("rename", "move"), start.place, place, strict=True)
        if was != now
    }
    require(changed == set(report.moves), f"moved to {place}, but reported {report.moves}")


def _place(history: Any) -> tuple[str, str] | None:
    datasource = history.data_source()
    return (datasource.name, datasource.project_name) if datasource else None


def _check_rows(history: Any, refresh: Refresh, report: Refreshed) -> None:
    """Check `min_rows`, even where nothing has changed."""
    if Accept.SHRINK in refresh.options.accept:
        return
    for table in refresh.declaration.tables:
        rows = report.checkpoint.tables[table.name].content.rows  # ty: ignore
        require(rows >= table.guard.min_rows, f"{table.name} has {rows} rows: {table.guard}")


def _wrong(rows: Rows | None, expected: Rows) -> list[str]:
    return ["there is no data source"] if rows is None else differences(rows, expected)
