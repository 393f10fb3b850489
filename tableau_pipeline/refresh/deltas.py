"""What changed between what may be published and what shall be: hyperd compares snapshots."""

import re
from collections.abc import Sequence

from tableauhyperapi import Connection, escape_name

from tableau_pipeline.core.policies import Append, Diff, Feed, Partitions, Policy, Replace
from tableau_pipeline.core.snapshot import ROW_HASH, Snapshot
from tableau_pipeline.hyper.rows import names, rows
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.refresh.change import Change, NotProvedError, part_of
from tableau_pipeline.refresh.contents import Models, cutoff_value, source
from tableau_pipeline.refresh.touched import Match, Part, fill
from tableau_pipeline.refresh.windows import changed_partitions


def find_parts(
    connection: Connection, change: Change, policy: Policy, models: Models
) -> list[Part]:
    """The touched set of a table by a policy, as tables of the payload.

    Raises:
        NotProvedError: the policy has no answer.
    """
    match policy:
        case Diff(key, Feed() as feed):
            parts = [_named_keys(connection, change, key, feed=feed, changes=models[feed.model])]
        case Diff(key):
            parts = [_changed_keys(connection, change, key)]
        case Append(cursor, lookback):
            parts = [_from_cursor(connection, change, cursor, lookback)]
        case Partitions(column):
            parts = changed_partitions(connection, change, column)
        case Replace():
            raise NotProvedError("its refresh is replace")
    return _expired(connection, change) + parts


def _expired(connection: Connection, change: Change) -> list[Part]:
    cutoff = change.new.cutoff
    if cutoff is None or all(old.cutoff == cutoff for old in change.olds):
        return []
    part = part_of(change, "expired", Match(cutoff.column, "lt", "cutoff"))
    columns = [change.column(cutoff.column, called="cutoff")]
    fill(connection, part, columns, f"SELECT {cutoff_value(change.columns, cutoff)}")
    return [part]


def _keys(change: Change, key: Sequence[str]) -> tuple[Part, list[Column]]:
    part = part_of(change, "touched", *(Match(name, "eq", name) for name in key))
    return part, [change.column(name) for name in key]


def _changed_keys(connection: Connection, change: Change, key: Sequence[str]) -> Part:
    part, columns = _keys(change, key)
    either = ", ".join(f"COALESCE(n.{c}, o.{c})" for c in map(escape_name, key))
    # The one name that no column of a model has.
    row_hash = escape_name(ROW_HASH)
    wanted = names([*key, ROW_HASH])
    # Rows of equal hashes have equal keys, and one number is found faster than a composite key.
    # Should hashes of different rows ever collide, the fingerprints do not add up.
    selects = [
        f"SELECT DISTINCT {either} FROM (SELECT {wanted} FROM {change.new.rows()} new) n "  # noqa: S608
        f"FULL JOIN (SELECT {wanted} FROM {change.surviving(old)} old) o "
        f"ON n.{row_hash} = o.{row_hash} WHERE n.{row_hash} IS NULL OR o.{row_hash} IS NULL"
        for old in change.olds
    ]
    fill(connection, part, columns, " UNION ".join(selects))
    return part


def _named_keys(
    connection: Connection,
    change: Change,
    key: Sequence[str],
    *,
    feed: Feed,
    changes: Sequence[Snapshot],
) -> Part:
    part, columns = _keys(change, key)
    values = [
        f"CAST({escape_name(of_feed)} AS {change.type(name)})"
        for name, of_feed in ((name, dict(feed.columns)[name]) for name in key)
    ]
    complete = " AND ".join(f"{escape_name(of_feed)} IS NOT NULL" for _, of_feed in feed.columns)
    named = source(feed.model, changes, only=[of_feed for _, of_feed in feed.columns])
    fill(
        connection,
        part,
        columns,
        f"SELECT DISTINCT {', '.join(values)} FROM {rows(named)} feed "  # noqa: S608
        f"WHERE {complete}",
    )
    return part


def _from_cursor(
    connection: Connection, change: Change, cursor: str, lookback: int | str | None
) -> Part:
    part = part_of(change, "touched", Match(cursor, "gte", "start"))
    type_ = change.type(cursor)
    back = "" if lookback is None else f" - {_span(lookback)}"
    ends = [
        f"SELECT MAX({escape_name(cursor)}) AS last FROM {old.rows()} old"  # noqa: S608
        for old in change.olds
    ]
    ends = f"({' UNION ALL '.join(ends)}) ends"
    if connection.execute_scalar_query(f"SELECT BOOL_OR(last IS NULL) FROM {ends}"):  # noqa: S608
        raise NotProvedError(f"nothing of it is published from which {cursor} could go on")
    columns = [change.column(cursor, called="start")]
    # The earliest of the ends: right from every base.
    fill(connection, part, columns, f"SELECT CAST(MIN(last){back} AS {type_}) FROM {ends}")  # noqa: S608
    return part


def _span(lookback: int | str) -> str:
    if isinstance(lookback, int) or re.fullmatch(r"\d+", lookback):
        return str(lookback)
    return f"INTERVAL '{lookback}'"
