"""What a refresh promises, checked while it runs."""

from typing import Any

from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.outcome import Accept
from tableau_pipeline_tests.refresh.stateful import scenarios
from tableau_pipeline_tests.refresh.stateful.actors import Actor, Killed, Sending
from tableau_pipeline_tests.refresh.stateful.checks import oracle
from tableau_pipeline_tests.refresh.stateful.checks.observer import Look, can_be_seen
from tableau_pipeline_tests.refresh.stateful.server.contents import differences
from tableau_sandbox.faults import HideRows, StaleRows
from tableau_sandbox.simulation import Datasource


class BrokenPromise(BaseException):
    """A refresh has not kept its promise."""


def check_may_send(history: Any, actor: Actor) -> None:
    """Whether a refresh may send anything at this moment."""
    later = actor.log.later_at
    if any(since is not None and actor.read < since for since in (actor.overtaken, later)):
        # Between its last look at the journal and the call, nothing can hold it back.
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
    split = sending.actor.declaration.on_oversize == "split"
    known = before.holds == sending.base == history.ledger.left.get(found.luid)
    tampered = not all(can_be_seen(history, each) for each in history.ledger.tamperings)
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


def require(kept: bool, what: str) -> None:
    """Fail the history unless this was kept."""
    if not kept:
        raise BrokenPromise(what)
