"""The checks of a request: may a refresh send it now, and does it have the right effect?"""

from fractions import Fraction
from typing import Any

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.core.identity import INSTANCE_TAG_PREFIX, TAG_PREFIX
from tableau_pipeline.outcome import Accept
from tableau_pipeline_tests.refresh.stateful import scenarios
from tableau_pipeline_tests.refresh.stateful.checks import expected
from tableau_pipeline_tests.refresh.stateful.checks.require import require
from tableau_pipeline_tests.refresh.stateful.checks.visibility import State, is_visible
from tableau_pipeline_tests.refresh.stateful.refreshes import Killed, Refresh, Request
from tableau_pipeline_tests.refresh.stateful.server.contents import differences
from tableau_sandbox.faults import HideRows, StaleRows
from tableau_sandbox.simulation import Datasource


def check_may_send(history: Any, refresh: Refresh, request_id: object) -> None:
    """Check that a refresh may send a request now.

    Args:
        request_id: the id of an update, which the server carries out once.

    Raises:
        CheckFailed: the refresh may not send the request.
        Killed: the refresh could not know; the harness kills it to keep the history going.
    """
    later = refresh.journal.later_at
    if any(
        since is not None and refresh.read_at < since for since in (refresh.overtaken_at, later)
    ):
        # Nothing can stop a refresh between its last look at the journal and the call.
        history.note(f"{refresh.name} is killed before it sends")
        refresh.killed = True
        raise Killed
    require(later is None, "a refresh sends after it has read a record of a later release")
    require(not refresh.options.dry_run, "a dry run sends")
    # Calls may take minutes, and another refresh may have begun meanwhile.
    call, is_repeated = refresh.last_call, request_id and request_id == refresh.request_id
    refresh.request_id = request_id
    require(
        not call or is_repeated,
        f"a refresh sends after a call ({call}), without a look at the journal in between",
    )
    require(refresh.overtaken_at is None, "a refresh sends although it was overtaken")
    for other in history.running[:-1]:
        journal = other.journal
        claims = other.holds_claim and not other.killed and other.name not in journal.ended
        wiped = journal.wiped > other.wiped
        require(
            not claims or wiped or journal is not refresh.journal, f"{other.name} has the claim"
        )


def check_request(history: Any, request: Request, target: Datasource | None) -> None:
    """Check a request that the server has just queued.

    Args:
        target: the data source that the request changes, if there is one.

    Raises:
        CheckFailed: the refresh should not have sent the request.
    """
    refresh, before = request.refresh, State.of(history, target)
    for other in history.requests.in_flight():
        require(False, f"a refresh sends during job {other.job[:4]} of {other.refresh.name}")
    if target and not _creates(refresh):
        _check_owner(history, refresh, target)
        _check_guards(history, request, before)
        _check_changes(history, request, before)
    _check_keys(request, before)


def check_effect(history: Any, request: Request, *, before: State, after: State) -> None:
    """Check that a request that took effect left the expected rows.

    Raises:
        CheckFailed: the data source has other rows.
    """
    datasource = after.datasource
    assert datasource is not None
    assert after.rows is not None
    _check_filters(history, request, before, after)
    is_publish = request.kind == "publish_datasource"
    split = request.refresh.declaration.on_oversize == "split"
    known_base = before.rows == request.base == history.requests.rows_left.get(datasource.luid)
    hidden = not all(is_visible(history, change) for change in history.requests.user_changes)
    if is_publish or (known_base and not split and not hidden):
        wrong = differences(after.rows, request.expected)
        require(not wrong, f"{request.kind} of {request.refresh.name} left wrong rows: {wrong}")


def _check_filters(history: Any, request: Request, before: State, after: State) -> None:
    """Check that a request has kept each row filter that the refresh could see."""
    if Accept.FILTER in request.refresh.options.accept or before.datasource is None:
        return
    requests, luid = history.requests, before.datasource.luid
    lost = [
        item
        for item, value in before.metadata.items()
        if item[0] == "filter"
        and after.metadata.get(item) != value
        and requests.set_by_users.get((luid, item), ("", 0))[1] < request.looked_at
    ]
    require(not lost, f"{request.kind} of {request.refresh.name} loses {lost}")


def _check_owner(history: Any, refresh: Refresh, target: Datasource) -> None:
    """Check that the data source does not belong to another deployment or declaration."""
    if Accept.TAKEOVER in refresh.options.accept:
        return
    journals, tags = history.journals.values(), target.tags
    owners = {j.instance for j in journals if f"{INSTANCE_TAG_PREFIX}{j.instance}" in tags}
    require(not owners or refresh.journal.instance in owners, f"sends to {owners}")
    keys = {journal.key for journal in journals if f"{TAG_PREFIX}{journal.key}" in tags}
    # If a user has removed the tag of the deployment, the key proves nothing.
    keys = keys if owners else set()
    require(not keys or refresh.journal.key in keys, f"sends to the data source of {keys}")


def _creates(refresh: Refresh) -> bool:
    """Whether the last request creates a data source, and so cannot change an existing one."""
    intents = refresh.journal.history().intents
    return bool(intents) and intents[-1].mode is PublishMode.CREATE


def _check_guards(history: Any, request: Request, before: State) -> None:
    """Check that no guard was skipped, even if records were lost."""
    refresh = request.refresh
    if Accept.SHRINK in refresh.options.accept or _counts_wrong(history, refresh):
        return
    requests, luid = history.requests, before.datasource.luid if before.datasource else ""
    # The two differ if another user's rows were there when our request took effect.
    ours = requests.rows_left.get(luid), requests.rows_expected.get(luid)
    is_hidden = not all(is_visible(history, change) for change in requests.user_changes)
    if is_hidden and not any(ours):
        # The refresh counted another user's rows before a later change, which the site still hides.
        return
    for table in refresh.declaration.tables:
        name = refresh.declaration.published_name(table.name)
        rows = len(request.expected[name]) - 1
        earlier = [tables for tables in (before.rows, *ours) if tables and name in tables]
        counts = {len(tables[name]) - 1 for tables in earlier} or {0}
        due = all(expected.breaks_guard(table.guard, rows, count) for count in counts)
        require(not due, f"sends {rows} rows of {name}, not {counts}: {table.guard}")


def _check_changes(history: Any, request: Request, before: State) -> None:
    """If all published rows are ours, check that no more rows change than a guard allows."""
    requests, luid = history.requests, before.datasource.luid if before.datasource else ""
    is_ours = before.rows == requests.rows_left.get(luid) == requests.rows_expected.get(luid)
    if Accept.CHANGE in request.refresh.options.accept or not is_ours:
        return
    declaration = request.refresh.declaration
    guards = {declaration.published_name(table.name): table.guard for table in declaration.tables}
    if requests.schemas[-1:] != [expected.schema(declaration, request.refresh.contents)]:
        # If a column has another type, it is a matter of taste which of its values have changed.
        return
    for name, share in expected.changed_shares(before.rows or {}, request.expected).items():
        limit = guards[name].max_change if name in guards else None
        is_within = limit is None or share <= Fraction(str(limit))
        require(is_within, f"changes {float(share):.0%} of the rows of {name}, over {limit}")


def _counts_wrong(history: Any, refresh: Refresh) -> bool:
    """Whether the refresh depends on the server's count of rows, which is wrong now."""
    rule = refresh.declaration.reconcile
    if rule is None or rule.max_bytes > scenarios.LARGE.max_bytes:
        return False
    return any(history.tableau.control.is_armed(kind) for kind in (HideRows, StaleRows))


def _check_keys(request: Request, before: State) -> None:
    """Check that the request changes no table that may not be published."""
    refresh, rows = request.refresh, before.rows or {}
    day = refresh.day or refresh.clock().date()
    for name, problem in expected.unpublishable(refresh.declaration, refresh.contents, day).items():
        published = refresh.declaration.published_name(name)
        changes = rows.get(published) != request.expected[published]
        require(not changes, f"sends {name}, although {problem}")
