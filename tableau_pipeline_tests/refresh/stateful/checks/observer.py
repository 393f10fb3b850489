"""What an observer can know of a data source: the only excuse for rows that are wrong.

The terms are those of docs/explanation/limits.md, under "What no refresh can see".
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tableau_pipeline_tests.refresh.stateful.server.contents import Published, Shown, held
from tableau_sandbox.simulation import Datasource


@dataclass(frozen=True)
class Look:
    """A data source, what it holds and shows, and its time stamp and newest revision."""

    datasource: Datasource | None
    holds: Published | None = None
    stamp: datetime | None = None
    revision: int | None = None
    shows: Shown = field(default_factory=dict)

    @classmethod
    def at(cls, history: Any, datasource: Datasource | None) -> "Look":
        if datasource is None:
            return cls(None)
        revision = datasource.revision if history.scenario.quirks["revisions"] else None
        stamp = datetime.fromisoformat(datasource.updated_at)
        holds, shows = held(history.tableau, datasource), history.shows(datasource)
        return cls(datasource, holds, stamp, revision, shows)


@dataclass(frozen=True)
class Tampering:
    """Another user changed the rows or columns.

    Attributes:
        moment: of the history; `at` is the time.
        stamp: the time stamp that it left; None if that did not move.
        is_certain: the data source is gone, or has a new revision.
    """

    moment: int
    at: datetime
    stamp: datetime | None
    is_certain: bool


def note_meddling(history: Any, what: str, before: Look) -> None:
    """Note what another user has done to a data source."""
    ledger, luid = history.ledger, before.datasource.luid if before.datasource else ""
    found = [each for each in history.tableau.datasources() if each.luid == luid]
    after = Look.at(history, found[0] if found else None)
    ledger.meddled_at = history.next_moment()
    is_, was = after.shows, before.shows
    changed = {place for place in is_.keys() | was.keys() if is_.get(place) != was.get(place)}
    ledger.note_people(luid, {place: is_.get(place, "") for place in changed})
    for actor in history.actors:
        actor.meddled = True
        actor.touched |= changed
    if after.holds == before.holds:
        return
    made = Tampering(
        ledger.meddled_at,
        history.tableau.now,
        None if after.stamp == before.stamp else after.stamp,
        is_certain=not found or after.revision != before.revision,
    )
    ledger.tamperings.append(made)
    history.note(
        f"... {what}: the data are others{'' if can_be_seen(history, made) else ', unseen'}"
    )
    note_rows(history, after)


def note_theirs(history: Any) -> Look:
    """Note what another user has set in the data source that they have just published."""
    theirs = Look.at(history, history.tableau.datasources()[-1])
    assert theirs.datasource
    history.ledger.note_people(theirs.datasource.luid, theirs.shows)
    history.ledger.meddled_at = history.moment
    return theirs


def note_rows(history: Any, look: Look) -> None:
    """Note how many rows the tables had."""
    for name, rows in (look.holds or {}).items():
        name = history.declaration.tables[0].name if name == "Extract" else name
        history.ledger.counts.setdefault(name, set()).add(len(rows) - 1)


def can_be_seen(history: Any, tampering: Tampering) -> bool:
    """Whether time stamp or revision tell of a change.

    They do not if it moves neither, nor if it happens while our own takes effect, or in the same
    second, and makes no revision.
    """
    if tampering.is_certain or tampering.stamp is None:
        return tampering.is_certain
    theirs = tampering.at, tampering.stamp
    return not any(
        start.replace(microsecond=0) <= each <= end
        for start, end in _our_changes(history)
        for each in theirs
    )


def may_be_anothers(history: Any, log: Any) -> bool:
    """Whether a data source may hold the work of people, as far as records and the site tell."""
    quirks = history.scenario.quirks
    # A stamp that comes after the job may be anybody's, if no revision tells.
    is_late = quirks["updates_move_stamp"] == "late" or quirks["job_stamps"] == "after"
    if is_late and not quirks["revisions"]:
        return True
    return history.unclear or records_may_miss_rows(history, log)


def records_may_miss_rows(history: Any, log: Any) -> bool:
    """Whether records were lost, another user has been there, or others alone have published."""
    wiped = any(each.wiped for each in history.logs.values())
    sendings = history.ledger.sendings.values()
    is_others = not any(each.landed and each.actor.log is log for each in sendings)
    return history.ledger.meddled_at > 0 or wiped or is_others


def _our_changes(history: Any) -> Generator[tuple[datetime, datetime]]:
    """From when to when changes of ours took effect, and their time stamps may have come."""
    yield from history.ledger.edits
    now, quirks = history.tableau.now, history.scenario.quirks
    for actor in history.actors:
        if actor.edited_at and not actor.dead:
            yield actor.edited_at, now
    moves_late = quirks["updates_move_stamp"] == "late"
    late = timedelta(seconds=quirks["late_stamp_seconds"] if moves_late else 0)
    for job in map(history.tableau.job, history.ledger.sendings):
        if job.started_at:
            start = datetime.fromisoformat(job.started_at)
            end = datetime.fromisoformat(job.completed_at) if job.completed_at else now
            if _jobs_are_unseen(history):
                # It takes effect between two looks at the data source, which become rarer.
                begun = datetime.fromisoformat(job.created_at)
                yield begun, end + late + timedelta(seconds=3) + (end - begun) / 2
            yield start, end + late


def _jobs_are_unseen(history: Any) -> bool:
    quirks = history.scenario.quirks
    is_hidden = quirks["job_access"] != "own-jobs" and not history.scenario.admin
    return is_hidden or quirks["finished_jobs"] == "gone"
