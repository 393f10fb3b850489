"""What a refresh promises, checked while it runs."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tableau_pipeline.core.declaration import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.refresh.plan import Accept
from tableau_pipeline_tests.refresh.stateful import scenarios
from tableau_pipeline_tests.refresh.stateful.actors import Actor, Killed, Sending
from tableau_pipeline_tests.refresh.stateful.checks import oracle
from tableau_pipeline_tests.refresh.stateful.server.contents import Published, differences, held
from tableau_sandbox.faults import HideRows, StaleRows
from tableau_sandbox.simulation import Datasource, Job


class BrokenPromise(BaseException):
    """A refresh has not kept its promise."""


@dataclass(frozen=True)
class Look:
    """A data source, what it holds, and what shows from outside that it is another one."""

    datasource: Datasource | None
    holds: Published | None
    stamp: tuple[str, int | None] | None

    @classmethod
    def at(cls, history: Any, datasource: Datasource | None) -> "Look":
        """As it is now."""
        if datasource is None:
            return cls(None, None, None)
        revision = datasource.revision if history.scenario.quirks["revisions"] else None
        holds = held(history.tableau, datasource)
        return cls(datasource, holds, (datasource.updated_at, revision))


@dataclass(frozen=True)
class Tampering:
    """Somebody else changed the rows or columns; if hidden, no stamp or revision shows it.

    A stamp shows nothing where it does not move, nor where we may have left it and no revision was
    made.
    """

    moment: int
    hidden: bool
    has_revision: bool
    at: datetime


def note_meddling(history: Any, deed: str, before: Look) -> None:
    """Note what somebody else has done to a data source."""
    ledger, luid = history.ledger, before.datasource.luid if before.datasource else ""
    found = [each for each in history.tableau.datasources() if each.luid == luid]
    after = Look.at(history, found[0] if found else None)
    ledger.meddled_at = history.next_moment()
    for actor in history.actors:
        actor.meddled = True
    for each in found:
        fields = history.other_user.work.get(luid, {})
        for name in [name for name in fields if name.encode() not in each.tds]:
            del fields[name]
    if after.holds == before.holds:
        return
    # Most sites make no revision for an update of the data.
    has_revision = bool(after.stamp and before.stamp and after.stamp[1] != before.stamp[1])
    hidden = bool(found) and (
        after.stamp == before.stamp or _looks_like_ours(history, after, has_revision=has_revision)
    )
    history.note(f"... {deed}: the data are others{', and nothing shows it' * hidden}")
    ledger.tamperings.append(
        Tampering(ledger.meddled_at, hidden, has_revision, history.tableau.now)
    )
    note_rows(history, after)


def note_rows(history: Any, look: Look) -> None:
    """Note how many rows the tables had."""
    for name, rows in (look.holds or {}).items():
        name = history.declaration.tables[0].name if name == "Extract" else name
        history.ledger.counts.setdefault(name, set()).add(len(rows) - 1)


def note_edit(history: Any) -> None:
    """Note an edit of ours: what somebody else did in the same second looks like it.

    That is a second by the server's `Date`, which we may know for a second already.
    """
    since = history.tableau.now - timedelta(seconds=2)
    ledger = history.ledger
    ledger.tamperings = [
        replace(each, hidden=each.hidden or (each.at >= since and not each.has_revision))
        for each in ledger.tamperings
    ]


def note_job(history: Any, job: Job) -> None:
    """Note that a job of ours has ended: what others did in its seconds looks like it, too."""
    if not job.started_at or not job.completed_at:
        return
    start = datetime.fromisoformat(job.started_at).replace(microsecond=0)
    end = datetime.fromisoformat(job.completed_at)
    ledger = history.ledger
    ledger.tamperings = [
        replace(each, hidden=each.hidden or (start <= each.at <= end and not each.has_revision))
        for each in ledger.tamperings
    ]


def _looks_like_ours(history: Any, after: Look, *, has_revision: bool) -> bool:
    """Whether the time stamp is one that we may have left, where nothing else shows it.

    That is a stamp in the time of a job of ours, or between an edit of ours and our next look.
    """
    if after.stamp is None or has_revision:
        return False
    if any(actor.edited and not actor.dead for actor in history.actors):
        return True
    if after.stamp[1] is not None:
        return False
    quirks = history.scenario.quirks
    moves_late = quirks["updates_move_stamp"] == "late"
    late = timedelta(seconds=quirks["late_stamp_seconds"] if moves_late else 0)
    stamp = datetime.fromisoformat(after.stamp[0])
    for luid in history.ledger.sendings:
        job = history.tableau.job(luid)
        if not job.started_at:
            continue
        start = datetime.fromisoformat(job.started_at).replace(microsecond=0)
        end = datetime.fromisoformat(job.completed_at) if job.completed_at else stamp
        if start <= stamp <= end + late:
            return True
    return False


def check_may_send(history: Any, actor: Actor) -> None:
    """Whether a refresh may send anything at this moment."""
    if actor.overtaken is not None and actor.read < actor.overtaken:
        # Between its last look at the journal and the call, nothing can hold it back.
        history.note(f"{actor.name} is killed before it sends")
        actor.dead = True
        raise Killed
    later = actor.log.later_at
    if later is not None and actor.read < later:
        # The same: that record came after its last look.
        history.note(f"{actor.name} is killed before it sends")
        actor.dead = True
        raise Killed
    require(later is None, "it sends although it has met a record of a later release")
    require(not actor.options.dry_run, "a dry run sends")
    require(actor.overtaken is None, "it sends although it was overtaken")
    for other in history.actors[:-1]:
        held = other.claimed and not other.dead and other.name not in other.log.ended
        wiped = other.log.wiped > other.wiped
        require(not held or wiped or other.log is not actor.log, f"{other.name} has the claim")


def check_sending(history: Any, sending: Sending, target: Datasource | None) -> None:
    """Whether what a refresh sends may be sent: the server has just queued it."""
    actor, before = sending.actor, Look.at(history, target)
    for other in history.ledger.in_flight():
        require(False, f"it sends beside job {other.job[:4]} of {other.actor.name}")
    if target:
        _check_owner(history, actor, target)
    _check_guards(history, sending, before)
    _check_keys(sending, before)


def check_effect(history: Any, sending: Sending, *, before: Look, after: Look) -> None:
    """What a sending of ours has made of the data source is what it was to make of it."""
    found = after.datasource
    assert found is not None
    assert after.holds is not None
    whole = sending.kind == "publish_datasource"
    split = sending.actor.declaration.oversize == "split"
    known = before.holds == sending.base == history.ledger.left.get(found.luid)
    tampered = any(each.hidden for each in history.ledger.tamperings)
    if whole or (known and not split and not tampered):
        wrong = differences(after.holds, sending.wanted)
        require(not wrong, f"{sending.kind} of {sending.actor.name} made it: {wrong}")


def _check_owner(history: Any, actor: Actor, target: Datasource) -> None:
    """The data source of another deployment, or of another declaration, is left alone."""
    if Accept.TAKEOVER in actor.options.accept:
        return
    logs = history.logs.values()
    owners = {log.instance for log in logs if f"{INSTANCE_TAG_PREFIX}{log.instance}" in target.tags}
    require(not owners or actor.log.instance in owners, f"it sends to what {owners} publish")
    keys = {log.key for log in logs if f"{TAG_PREFIX}{log.key}" in target.tags}
    require(not keys or actor.log.key in keys, f"it sends to what is published as {keys}")


def _check_guards(history: Any, sending: Sending, before: Look) -> None:
    """A guard that is due is never skipped, whatever became of the records."""
    actor, wanted = sending.actor, sending.wanted
    if Accept.SHRINK in actor.options.accept or _counts_wrong(history, actor):
        return
    ledger, luid = history.ledger, before.datasource.luid if before.datasource else ""
    # They differ if somebody else's rows were there when a sending of ours took effect.
    left, meant = ledger.left.get(luid), ledger.meant.get(luid)
    for table in actor.declaration.tables:
        name = actor.declaration.published_name(table.name)
        rows = len(wanted[name]) - 1
        known = [each for each in (before.holds, left, meant) if each and name in each]
        counts = {len(each[name]) - 1 for each in known} or {0}
        due = all(oracle.shrunk(table.guard, rows, count) for count in counts)
        require(not due, f"it sends {rows} rows of {name}, not {counts}: {table.guard}")


def _counts_wrong(history: Any, actor: Actor) -> bool:
    """Whether a server that counts too few rows is the only one that may be asked for them."""
    rule = actor.declaration.reconcile
    if rule is None or rule.max_bytes > scenarios.LARGE.max_bytes:
        return False
    return any(history.tableau.control.is_armed(kind) for kind in (HideRows, StaleRows))


def _check_keys(sending: Sending, before: Look) -> None:
    """Rows that cannot be told apart are not sent."""
    actor, holds = sending.actor, before.holds or {}
    day = actor.day or actor.clock().date()
    for name, problem in oracle.unfit(actor.declaration, actor.contents, day).items():
        published = actor.declaration.published_name(name)
        changes = holds.get(published) != sending.wanted[published]
        require(not changes, f"it sends {name}, of which {problem}")


def check_work(history: Any, sending: Sending, found: Datasource, job: Job) -> None:
    """What somebody else added to the metadata is still there, or was given up and is saved."""
    actor = sending.actor
    fields = history.other_user.work.get(found.luid, {})
    gone = {name: fields.pop(name) for name in [*fields] if name.encode() not in found.tds}
    lost = [name for name, moment in gone.items() if moment < actor.looked]
    if not lost:
        return
    # Only a sending takes over what no sending of ours has made or changed before.
    adopts, whole = found.luid not in history.ledger.left, job.parameters.get("publication", {})
    if adopts or whole.get("mode") == "overwrite":
        saved = [name for name in lost if _is_saved(history.kept, name)]
        require(saved == lost, f"the work {lost} is lost, of which {saved} is saved")
    actor.lost_work = adopts and Accept.OVERWRITE not in actor.options.accept
    breaks = history.scenario.quirks["replace"] == "like-overwrite"
    require(breaks or Accept.OVERWRITE in actor.options.accept, f"the work {lost} is lost")


def _is_saved(folder: Path, name: str) -> bool:
    """Whether some data source was saved with this in its metadata."""
    for path in folder.iterdir() if folder.exists() else ():
        with ZipFile(path) as package:
            documents = [each for each in package.namelist() if each.endswith(".tds")]
            if any(name.encode() in package.read(each) for each in documents):
                return True
    return False


def require(kept: bool, what: str) -> None:
    """Fail the history unless this was kept."""
    if not kept:
        raise BrokenPromise(what)
