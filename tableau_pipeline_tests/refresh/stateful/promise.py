"""What a refresh promises, checked while it runs."""

from dataclasses import dataclass
from typing import Any

from tableau_pipeline.refresh.plan import Accept
from tableau_pipeline_tests.refresh.stateful import oracle
from tableau_pipeline_tests.refresh.stateful.actors import Actor, Killed, Sending
from tableau_pipeline_tests.refresh.stateful.server.truth import Published, differences


class BrokenPromiseError(AssertionError):
    """A refresh has not kept it."""


@dataclass(frozen=True)
class Look:
    """What the data source holds, and what shows from outside that it is another one."""

    holds: Published | None
    stamp: tuple[str, int | None] | None

    @classmethod
    def of(cls, history: Any) -> "Look":
        """As it is now."""
        found = history.found()
        if found is None:
            return cls(None, None)
        revision = found.revision if history.world.switches["revisions"] else None
        return cls(history.holds(), (found.updated_at, revision))


@dataclass
class Tampering:
    """Somebody else changed the rows or columns.

    Attributes:
        hidden: neither time stamp nor revision tells of it.
    """

    moment: int
    hidden: bool


def note_hand(history: Any, deed: str, before: Look) -> None:
    """Note what somebody else has done."""
    after, found = Look.of(history), history.found()
    if found:
        marks = history.hands.marks.get(found.luid, {})
        for mark in [mark for mark in marks if mark.encode() not in found.tds]:
            del marks[mark]
    moment = history.next_moment()
    history.line.handled = moment
    if after.holds != before.holds:
        hidden = after.stamp == before.stamp and after.holds is not None
        history.tell(f"... which changes the data{', and nothing shows it' * hidden}")
        for name, rows in (after.holds or {}).items():
            name = history.declaration.tables[0].name if name == "Extract" else name
            history.line.counts.setdefault(name, set()).add(len(rows) - 1)
        history.line.tamperings.append(Tampering(moment, hidden))


def check_may_send(history: Any, actor: Actor) -> None:
    """Whether a refresh may send anything at this moment."""
    if actor.overtaken is not None and actor.read < actor.overtaken:
        # Between its last look at the journal and the call, nothing can hold it back.
        history.tell(f"{actor.name} is killed before it sends")
        actor.dead = True
        raise Killed
    _require(not actor.options.dry_run, "a dry run sends")
    _require(actor.overtaken is None or not actor.claimed, "it sends although it was overtaken")
    for other in history.actors[:-1]:
        held = other.claimed and not other.dead and other.name not in other.log.ended
        wiped = other.log.wiped > other.wiped
        _require(not held or wiped or other.log is not actor.log, f"{other.name} has the claim")
    _check_owner(history, actor)
    _check_guards(history, actor)
    _check_keys(history, actor)


def check_alone(history: Any, sending: Sending) -> None:
    """Never are two sendings of ours on their way."""
    for other in history.line.sendings.values():
        _require(other.ended, f"it sends beside {other.job[:4]} of {other.actor.name}")


def check_effect(history: Any, sending: Sending) -> None:
    """What a sending of ours has made of the data source is what it was to make of it."""
    holds, left = history.holds(), history.line.left
    history.line.left = holds
    if holds is None:
        return
    whole = sending.kind == "publish_datasource"
    split = sending.actor.declaration.oversize == "split"
    if whole or (not split and sending.before == sending.base == left):
        wrong = differences(holds, sending.wanted)
        _require(not wrong, f"{sending.kind} of {sending.actor.name} made it: {wrong}")
    _check_marks(history, sending.actor)


def _check_owner(history: Any, actor: Actor) -> None:
    """Another deployment's data source is left alone."""
    found = history.found()
    if found is None or Accept.TAKEOVER in actor.options.accept:
        return
    others = [log for log in history.logs if f"tableau-pipeline-instance:{log}" in found.tags]
    _require(
        not others or actor.log.instance in others, f"it sends to the data source of {others}"
    )


def _check_guards(history: Any, actor: Actor) -> None:
    """A guard that is due is never skipped, whatever the records are."""
    if Accept.SHRINK in actor.options.accept:
        return
    wanted, known = actor.wanted, [history.holds(), history.line.left]
    if known[0] is None:
        known = [None]
    for table in actor.declaration.tables:
        name = actor.declaration.published_name(table.name)
        counts = {len(each[name]) - 1 if each and name in each else None for each in known}
        rows = len(wanted[name]) - 1
        due = all(oracle.shrunk(table.guard, rows, count) for count in counts)
        _require(not due, f"it sends {rows} rows of {name} where {counts} are, despite {table.guard}")


def _check_keys(history: Any, actor: Actor) -> None:
    """Rows that cannot be told apart are not sent."""
    wanted, holds = actor.wanted, history.holds() or {}
    problems = oracle.unfit(actor.declaration, actor.contents, actor.clock().date())
    for name, problem in problems.items():
        published = actor.declaration.published_name(name)
        changes = holds.get(published) != wanted[published]
        _require(not changes, f"it sends {name}, of which {problem}")


def _check_marks(history: Any, actor: Actor) -> None:
    """What somebody else added to the metadata is still there."""
    found = history.found()
    marks = history.hands.marks.get(found.luid, {})
    lost = [mark for mark in marks if mark.encode() not in found.tds]
    moments = [marks.pop(mark) for mark in lost]
    allowed = (
        Accept.OVERWRITE in actor.options.accept
        or history.world.switches["replace"] == "like-overwrite"
    )
    _require(
        allowed or all(moment > actor.looked for moment in moments), f"the work {lost} is lost"
    )


def _require(kept: bool, what: str) -> None:
    if not kept:
        raise BrokenPromiseError(what)
