"""Find the rows that a policy affects: hyperd compares published and desired rows."""

import re
from collections.abc import Sequence

from tableauhyperapi import Connection, escape_name

from tableau_pipeline.core.policies import Append, Diff, Feed, Partitions, Policy, Replace
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.extracts.desired import Models, cutoff_value, source
from tableau_pipeline.extracts.updates.affected_partitions import changed_partitions
from tableau_pipeline.extracts.updates.affected_rows import KeyMatch, KeyTable, fill
from tableau_pipeline.extracts.updates.change import Change, NotProvedError, key_table
from tableau_pipeline.extracts.updates.slices import in_slices
from tableau_pipeline.hyper.parquet.rows import names, rows
from tableau_pipeline.hyper.tables import ROW_HASH, Column

# The only name that no column of a model can have.
_HASH = escape_name(ROW_HASH)
# A temporary table: what a failed comparison has found must leave no gaps in the payload.
_FOUND = escape_name("differing keys")


def find_affected(
    connection: Connection, change: Change, policy: Policy, models: Models, *, memory: int
) -> list[KeyTable]:
    """Return the rows of a table that a policy affects, as key tables of the payload.

    Args:
        memory: the bytes that hyperd may use.

    Raises:
        NotProvedError: the policy cannot determine them.
    """
    match policy:
        case Diff(key, Feed() as feed):
            keys = [_named_keys(connection, change, key, feed=feed, changes=models[feed.model])]
        case Diff(key):
            keys = [_changed_keys(connection, change, key, memory=memory)]
        case Append(cursor, lookback):
            keys = [_from_cursor(connection, change, cursor, lookback)]
        case Partitions(column):
            keys = changed_partitions(connection, change, column)
        case Replace():
            raise NotProvedError("its refresh is replace")
    return _expired(connection, change) + keys


def _expired(connection: Connection, change: Change) -> list[KeyTable]:
    cutoff = change.new.cutoff
    if cutoff is None or change.published.cutoff == cutoff:
        return []
    keys = key_table(change, "expired", KeyMatch(cutoff.column, "lt", "cutoff"))
    columns = [change.column(cutoff.column, called="cutoff")]
    fill(connection, keys, columns, f"SELECT {cutoff_value(change.columns, cutoff)}")
    return [keys]


def _keys(change: Change, key: Sequence[str]) -> tuple[KeyTable, list[Column]]:
    keys = key_table(change, "keys", *(KeyMatch(name, "eq", name) for name in key))
    return keys, [change.column(name) for name in key]


def _changed_keys(
    connection: Connection, change: Change, key: Sequence[str], *, memory: int
) -> KeyTable:
    keys, columns = _keys(change, key)
    # Rows of shared files are in both versions. Those that have the key of a changed row are found
    # by the proof.
    sides = (change.unshared(change.new), change.unshared(change.published))

    def compare(slices: int) -> None:
        connection.execute_command(f"DROP TABLE IF EXISTS {_FOUND}")
        definitions = ", ".join(f"{escape_name(name)} {change.type(name)}" for name in key)
        connection.execute_command(f"CREATE TEMPORARY TABLE {_FOUND} ({definitions})")
        for index in range(slices):
            # hyperd joins all rows faster if no condition misleads its estimate of their number.
            where = f"({_HASH} & {slices - 1}) = {index}" if slices > 1 else "TRUE"
            select = _differing(change, key, where=where)
            connection.execute_command(f"INSERT INTO {_FOUND} {select}")
        # A changed row has another hash, so its key may be found in two slices.
        fill(connection, keys, columns, f"SELECT DISTINCT {names(key)} FROM {_FOUND}")  # noqa: S608
        connection.execute_command(f"DROP TABLE {_FOUND}")

    in_slices(compare, rows=max(sum(file.rows for file in files) for files in sides), memory=memory)
    return keys


def _differing(change: Change, key: Sequence[str], *, where: str) -> str:
    """Return SQL for the keys of rows that only one of both versions has."""
    either = ", ".join(f"COALESCE(n.{c}, o.{c})" for c in map(escape_name, key))
    new, old = (
        f"(SELECT {names([*key, ROW_HASH])} FROM {rows} side WHERE {where})"  # noqa: S608
        for rows in (change.new.rows(change.unshared(change.new)), change.surviving())
    )
    # Equal row hashes imply equal keys, and joining on one number is faster than on a composite
    # key. If hashes of different rows ever collide, the fingerprints do not add up.
    return (
        f"SELECT DISTINCT {either} FROM {new} n FULL JOIN {old} o ON n.{_HASH} = o.{_HASH} "  # noqa: S608
        f"WHERE n.{_HASH} IS NULL OR o.{_HASH} IS NULL"
    )


def _named_keys(
    connection: Connection,
    change: Change,
    key: Sequence[str],
    *,
    feed: Feed,
    changes: Snapshot,
) -> KeyTable:
    keys, columns = _keys(change, key)
    # The feed may have the key in another type, but the server compares equal types only.
    values = [
        f"CAST({escape_name(of_feed)} AS {change.type(name)})"
        for name, of_feed in ((name, dict(feed.columns)[name]) for name in key)
    ]
    # A key with a NULL matches no row on the server, so it names nothing.
    complete = " AND ".join(f"{escape_name(of_feed)} IS NOT NULL" for _, of_feed in feed.columns)
    named = source(feed.model, changes, only=[of_feed for _, of_feed in feed.columns])
    fill(
        connection,
        keys,
        columns,
        f"SELECT DISTINCT {', '.join(values)} FROM {rows(named)} feed "  # noqa: S608
        f"WHERE {complete}",
    )
    return keys


def _from_cursor(
    connection: Connection, change: Change, cursor: str, lookback: int | str | None
) -> KeyTable:
    keys = key_table(change, "keys", KeyMatch(cursor, "gte", "start"))
    type_ = change.type(cursor)
    back = "" if lookback is None else f" - {_span(lookback)}"
    last = f"(SELECT MAX({escape_name(cursor)}) AS last FROM {change.published.rows()} old) ends"  # noqa: S608
    if connection.execute_scalar_query(f"SELECT last IS NULL FROM {last}"):  # noqa: S608
        raise NotProvedError(f"nothing of it is published from which {cursor} could go on")
    columns = [change.column(cursor, called="start")]
    # The cast is needed because a date minus an interval is a timestamp.
    fill(connection, keys, columns, f"SELECT CAST(last{back} AS {type_}) FROM {last}")  # noqa: S608
    return keys


def _span(lookback: int | str) -> str:
    if isinstance(lookback, int) or re.fullmatch(r"\d+", lookback):
        return str(lookback)
    return f"INTERVAL '{lookback}'"
