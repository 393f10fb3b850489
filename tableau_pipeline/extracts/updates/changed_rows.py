"""Find the rows that a policy affects: hyperd compares published and desired rows."""

import re
from collections.abc import Sequence

from tableauhyperapi import Connection, HyperException, escape_name

from tableau_pipeline.core.policies import Append, Diff, Feed, Partitions, Policy, Replace
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.extracts.desired import Models, cutoff_value, table_source
from tableau_pipeline.extracts.updates.affected_partitions import changed_partitions
from tableau_pipeline.extracts.updates.affected_rows import Affected, KeyMatch, KeyTable, fill
from tableau_pipeline.extracts.updates.change import Change, NotProvedError, key_table
from tableau_pipeline.extracts.updates.comparison import changed_keys
from tableau_pipeline.hyper.parquet.rows import rows


def find_affected(
    connection: Connection, change: Change, policy: Policy, models: Models, *, memory: int
) -> Affected:
    """Return the rows of a table that a policy affects.

    Args:
        memory: the bytes that hyperd may use.

    Raises:
        NotProvedError: the policy cannot determine them.
    """
    equal = None
    match policy:
        case Diff(key, Feed() as feed):
            keys = [_named_keys(connection, change, key, feed=feed, changes=models[feed.model])]
        case Diff(key):
            keys = [_keys(change, key)]
            equal = changed_keys(connection, change, keys[0], memory=memory)
        case Append(cursor, lookback):
            keys = [_from_cursor(connection, change, cursor, lookback)]
        case Partitions(column):
            keys = changed_partitions(connection, change, column)
        case Replace():
            raise NotProvedError("its refresh is replace")
    return Affected([*_expired(connection, change), *keys], equal)


def _expired(connection: Connection, change: Change) -> list[KeyTable]:
    cutoff = change.new.cutoff
    if cutoff is None or change.published.cutoff == cutoff:
        return []
    keys = key_table(change, "expired", KeyMatch(cutoff.column, "lt", "cutoff"))
    columns = [change.column(cutoff.column, called="cutoff")]
    fill(connection, keys, columns, f"SELECT {cutoff_value(change.columns, cutoff)}")
    return [keys]


def _keys(change: Change, key: Sequence[str]) -> KeyTable:
    return key_table(change, "keys", *(KeyMatch(name, "eq", name) for name in key))


def _named_keys(
    connection: Connection,
    change: Change,
    key: Sequence[str],
    *,
    feed: Feed,
    changes: Snapshot,
) -> KeyTable:
    keys = _keys(change, key)
    # The feed may have the key in another type, but the server compares equal types only.
    values = [
        f"CAST({escape_name(of_feed)} AS {change.type(name)})"
        for name, of_feed in ((name, dict(feed.columns)[name]) for name in key)
    ]
    # A key with a NULL matches no row on the server, so it names nothing.
    complete = " AND ".join(f"{escape_name(of_feed)} IS NOT NULL" for _, of_feed in feed.columns)
    named = rows(table_source(feed.model, changes, only=[of_feed for _, of_feed in feed.columns]))
    select = f"SELECT DISTINCT {', '.join(values)} FROM {named} feed WHERE {complete}"  # noqa: S608
    try:
        fill(connection, keys, [change.column(name) for name in key], select)
    except HyperException as error:
        # An empty text, say, where the table has numbers. hyperd cannot skip it: its TRY_CAST fails
        # for most types, too.
        why = str(error).splitlines()[0].rstrip(": ")
        raise NotProvedError(
            f'the feed "{feed.model}" has keys that are none of the table ({why})'
        ) from error
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
