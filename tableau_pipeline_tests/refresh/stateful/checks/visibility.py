"""The changes by other users that a refresh can see. Only an invisible change excuses wrong rows.

docs/explanation/limits.md has the rules, under "What no refresh can see".
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tableau_pipeline_tests.refresh.stateful.server.contents import Metadata, Rows, rows_of
from tableau_sandbox.simulation import Datasource


@dataclass(frozen=True)
class State:
    """A data source at one moment, with its rows, metadata, time stamp and newest revision."""

    datasource: Datasource | None
    rows: Rows | None = None
    stamp: datetime | None = None
    revision: int | None = None
    metadata: Metadata = field(default_factory=dict)

    @classmethod
    def of(cls, history: Any, datasource: Datasource | None) -> "State":
        """The present state of a data source."""
        if datasource is None:
            return cls(None)
        revision = datasource.revision if history.scenario.quirks["revisions"] else None
        stamp = datetime.fromisoformat(datasource.updated_at)
        rows, metadata = rows_of(history.tableau, datasource), history.metadata_of(datasource)
        return cls(datasource, rows, stamp, revision, metadata)


@dataclass(frozen=True)
class UserChange:
    """A change of rows or columns by another user.

    Attributes:
        moment: the moment of the change in the history.
        at: the time of the change by the server's clock.
        stamp: the data source's new time stamp; None if the time stamp did not move.
        is_certain: the data source is gone, or has a new revision.
    """

    moment: int
    at: datetime
    stamp: datetime | None
    is_certain: bool


def note_users_change(history: Any, what: str, before: State) -> None:
    """Note what another user changed in a data source.

    Args:
        what: the event, or the kind of the job, for the trace.
    """
    requests, luid = history.requests, before.datasource.luid if before.datasource else ""
    still_there = [d for d in history.tableau.datasources() if d.luid == luid]
    after = State.of(history, still_there[0] if still_there else None)
    requests.users_acted_at = history.next_moment()
    new, old = after.metadata, before.metadata
    changed = {item for item in new.keys() | old.keys() if new.get(item) != old.get(item)}
    items = {item: new.get(item, "") for item in changed} if still_there else {}
    requests.note_set_by_users(luid, items)
    for refresh in history.running:
        refresh.users_acted = True
        refresh.touched_by_users |= changed
    change = UserChange(
        requests.users_acted_at,
        history.tableau.now,
        None if after.stamp == before.stamp else after.stamp,
        is_certain=not still_there or after.revision != before.revision,
    )
    gone = {item for item in changed if item[0] == "filter" and item not in new}
    if gone and not is_visible(history, change):
        for journal in history.journals.values():
            journal.filters -= gone
    if after.rows == before.rows:
        return
    requests.user_changes.append(change)
    history.note(
        f"... {what}: the data have changed{'' if is_visible(history, change) else ', unseen'}"
    )
    note_rows(history, after)


def note_users_data_source(history: Any) -> State:
    """Note the metadata and the rows of the data source that another user has just published.

    Returns:
        The state of the data source.
    """
    state = State.of(history, history.tableau.datasources()[-1])
    assert state.datasource
    history.requests.note_set_by_users(state.datasource.luid, state.metadata)
    note_rows(history, state)
    history.requests.users_acted_at = history.moment
    return state


def note_rows(history: Any, state: State) -> None:
    """Note how many rows the tables had."""
    for name, rows in (state.rows or {}).items():
        name = history.declaration.tables[0].name if name == "Extract" else name
        history.requests.row_counts.setdefault(name, set()).add(len(rows) - 1)


def is_visible(history: Any, change: UserChange) -> bool:
    """Whether the time stamp or a revision shows a change.

    Some changes affect neither of the two. The time stamp also does not show a change that happens
    while a request of ours takes effect, or in the same second.
    """
    if change.is_certain or change.stamp is None:
        return change.is_certain
    times = change.at, change.stamp
    return not any(
        start.replace(microsecond=0) <= time <= end
        for start, end in _times_of_ours(history)
        for time in times
    )


def users_may_have_edited(history: Any, journal: Any) -> bool:
    """Whether users may have edited a data source, as far as the records and the site show."""
    quirks = history.scenario.quirks
    # Without revisions, a time stamp that comes after the job may be any user's.
    is_late = quirks["updates_move_stamp"] == "late" or quirks["job_stamps"] == "after"
    if is_late and not quirks["revisions"]:
        return True
    return history.edits_unclear or records_may_miss_rows(history, journal)


def records_may_miss_rows(history: Any, journal: Any) -> bool:
    """Whether records were lost, another user changed something, or this journal has no publish."""
    wiped = any(other.wiped for other in history.journals.values())
    requests = history.requests.sent.values()
    has_published = any(r.took_effect and r.refresh.journal is journal for r in requests)
    return history.requests.users_acted_at > 0 or wiped or not has_published


def _times_of_ours(history: Any) -> Generator[tuple[datetime, datetime]]:
    """The periods in which our changes took effect and their time stamps may have come."""
    yield from history.requests.edits
    now, quirks = history.tableau.now, history.scenario.quirks
    for refresh in history.running:
        if refresh.edited_at and not refresh.killed:
            yield refresh.edited_at, now
    moves_late = quirks["updates_move_stamp"] == "late"
    late = timedelta(seconds=quirks["late_stamp_seconds"] if moves_late else 0)
    for job in map(history.tableau.job, history.requests.sent):
        if job.started_at:
            start = datetime.fromisoformat(job.started_at)
            end = datetime.fromisoformat(job.completed_at) if job.completed_at else now
            if _jobs_are_hidden(history):
                # The refresh only knows that the job took effect between two of its looks. These
                # looks become rarer with time.
                created = datetime.fromisoformat(job.created_at)
                yield created, end + late + timedelta(seconds=3) + (end - created) / 2
            yield start, end + late


def _jobs_are_hidden(history: Any) -> bool:
    """Whether our refreshes cannot ask the server for their jobs."""
    quirks = history.scenario.quirks
    is_hidden = quirks["job_access"] != "own-jobs" and not history.scenario.admin
    return is_hidden or quirks["finished_jobs"] == "gone"
