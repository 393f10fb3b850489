"""Express changed partitions as windows or values of a column of the published table."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeVar
from zoneinfo import ZoneInfo

from tableauhyperapi import Connection, HyperException, TableName, escape_name

from tableau_pipeline.actions.batch import Delete, all_of, source, target
from tableau_pipeline.actions.conditions import Condition
from tableau_pipeline.core.checkpoint import Cutoff
from tableau_pipeline.core.declaration import (
    Append,
    Diff,
    Feed,
    Partitions,
    Policy,
    Replace,
    Table,
    megabytes,
)
from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Part, Snapshot, Span
from tableau_pipeline.extracts.desired import Models, cutoff_value, kept, literal, table_source
from tableau_pipeline.hyper.build import NEW, create_table
from tableau_pipeline.hyper.parquet import names, rows
from tableau_pipeline.hyper.process import is_out_of_memory
from tableau_pipeline.hyper.tables import ROW_HASH, Column, TableSource
from tableau_pipeline.hyper.types import hyper_type, zone_of

# The affected rows of a table: an update deletes them and inserts their current version.
#
# Small tables of the payload, the key tables, identify them: a row is affected if it matches a
# row of any key table. Keys, windows and cutoffs are sent as tables because constants in a batch
# cannot be decimals or dates, and have milliseconds only.


Kind = Literal["keys", "expired", "values"]

_SQL = {"eq": "=", "lt": "<", "gte": ">="}


@dataclass(frozen=True, slots=True)
class KeyMatch:
    """A row's `column` compared with the column `by` of a key table."""

    column: str
    operator: Literal["eq", "lt", "gte"]
    by: str

    def sql(self, row: str, keys: str) -> str:
        """The comparison in SQL, between two relations given by their aliases."""
        left, right = escape_name(self.column), escape_name(self.by)
        return f"{row}.{left} {_SQL[self.operator]} {keys}.{right}"

    @property
    def condition(self) -> Condition:
        """The comparison as a condition of an action."""
        left, right = target(self.column), source(self.by)
        if self.operator == "eq":
            return left == right
        return left < right if self.operator == "lt" else left >= right


@dataclass(frozen=True, slots=True)
class KeyTable:
    """A key table of the payload, in the schema `kind`, and how rows match it."""

    kind: Kind
    name: str
    matches: tuple[KeyMatch, ...]

    @property
    def table(self) -> TableName:
        """Its name in the finished payload."""
        return TableName(self.kind, self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns; the server accepts no others."""
        return tuple(dict.fromkeys(match.by for match in self.matches))

    def affects(self, row: str) -> str:
        """Return SQL that is true for matching rows of the relation with this alias."""
        comparisons = " AND ".join(match.sql(row, "keys") for match in self.matches)
        return f"EXISTS (SELECT 1 FROM {in_payload(self.kind, self.name)} keys WHERE {comparisons})"  # noqa: S608

    def delete(self, published: TableName) -> Delete:
        """Return the action that deletes the matching rows."""
        where = all_of(match.condition for match in self.matches)
        return Delete(target=published, source=self.table, where=where)


@dataclass(frozen=True, slots=True)
class Affected:
    """The affected rows of a table: they match a row of any of the key tables.

    Attributes:
        equal: the number of pairs of rows, one of either version, whose columns are all equal, in
            the files that the versions do not share; None if their columns were not compared.
    """

    keys: Sequence[KeyTable]
    equal: int | None


def fill(connection: Connection, keys: KeyTable, columns: Sequence[Column], select: str) -> None:
    """Create a key table in the payload from the rows of a query."""
    table = in_payload(keys.kind, keys.name)
    create_table(connection, table, columns)
    connection.execute_command(
        f"INSERT INTO {table} ({names([column.name for column in columns])}) {select}"
    )


def in_payload(schema: str, table: str) -> TableName:
    """Return the name of a table while the payload is being written."""
    return TableName(NEW, schema, table)


def affected(keys: Sequence[KeyTable], row: str) -> str:
    """Return SQL that is true for the affected rows of the relation with this alias."""
    return f"({' OR '.join(each.affects(row) for each in keys) or 'FALSE'})"


# A table that changes: its published version and its desired version.


class NotProvedError(Exception):
    """No delta can be proved to be sufficient; the reason is a phrase."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The published or desired content of a table, with the snapshot that holds its rows."""

    snapshot: Snapshot
    content: Fingerprint
    cutoff: Cutoff | None

    def rows(self, files: Iterable[DataFile] | None = None) -> str:
        """Return its rows with their hashes, as SQL; those of some files, or all."""
        return rows(table_source("", self.snapshot, self.cutoff, hashed=True, files=files))


@dataclass(frozen=True, slots=True)
class Change:
    """One table of an update: its published version and its desired version.

    Versions share the files of partitions that were not written again between them, if both read
    them alike. Their rows need not be compared, and mostly need not be read.

    Attributes:
        old: None if the published rows are not available; then the whole table is sent.
        published_rows: the number of published rows.
        whole: why the whole table is sent; None if less may do.
    """

    table: Table
    columns: tuple[Column, ...]
    new: TableVersion
    old: TableVersion | None
    published_rows: int
    whole: str | None = None

    def column(self, name: str, *, called: str | None = None) -> Column:
        """Return a column of the table, optionally under another name."""
        found = next(column for column in self.columns if column.name == name)
        return Column(called or name, found.type)

    def type(self, name: str) -> str:
        """Return the Hyper type of a column."""
        return hyper_type(self.column(name), table=self.table.name)

    @property
    def published(self) -> TableVersion:
        """The published version.

        Raises:
            NotProvedError: its rows are not available.
        """
        if self.old is None:
            raise NotProvedError("the snapshot that is published is gone")
        return self.old

    @property
    def shared(self) -> tuple[DataFile, ...]:
        """The files of both versions, from which no row comes back."""
        if not self._is_cut_as_late:
            return ()
        published = {*self.published.snapshot.files}
        return tuple(file for file in self.new.snapshot.files if file in published)

    def unshared(self, version: TableVersion) -> tuple[DataFile, ...]:
        """Return the other files of a version."""
        shared = {*self.shared}
        return tuple(file for file in version.snapshot.files if file not in shared)

    def source(self, files: Iterable[DataFile]) -> TableSource:
        """Return the desired rows of some files of the new version."""
        return table_source(self.table.name, self.new.snapshot, self.new.cutoff, files=files)

    def came(self) -> str:
        """Return the rows of files not shared that the new version has, as SQL."""
        return self.new.rows(self.unshared(self.new))

    def gone(self) -> str:
        """Return the published rows of files not shared, and expired ones of the others, as SQL."""
        old, cutoff = self.published, self.new.cutoff
        unshared = old.rows(self.unshared(old))
        if cutoff in (None, old.cutoff):
            return unshared
        expired = (
            f"SELECT * FROM {old.rows(self.shared)} old WHERE NOT {kept(self.columns, cutoff)}"  # noqa: S608
        )
        return f"(SELECT * FROM {unshared} old UNION ALL {expired})"  # noqa: S608

    def surviving(self) -> str:
        """Return the published rows that the new cutoff keeps, of files not shared, as SQL."""
        old = self.published
        published = old.rows(self.unshared(old))
        # Expired rows are deleted by the cutoff; here they would count as changed as well.
        if self.new.cutoff in (None, old.cutoff):
            return published
        return f"(SELECT * FROM {published} old WHERE {kept(self.columns, self.new.cutoff)})"  # noqa: S608

    @property
    def _is_cut_as_late(self) -> bool:
        """Whether the new cutoff drops every row of a file that the published one drops."""
        old, new = self.published.cutoff, self.new.cutoff
        if old is None or old == new:
            return True
        # As texts, dates and time stamps are in the order of time.
        return new is not None and new.column == old.column and new.value >= old.value


def key_table(change: Change, kind: Kind, *matches: KeyMatch) -> KeyTable:
    """Return a key table that identifies affected rows of the changed table."""
    return KeyTable(kind=kind, name=change.table.name, matches=matches)


def changed_partitions(connection: Connection, change: Change, column: str) -> list[KeyTable]:
    """Return the windows or values of the partitions that changed, vanished or are new.

    Raises:
        NotProvedError: the published version was not partitioned.
    """
    before, now = (_by_partition(each.snapshot) for each in (change.published, change.new))
    if None in before:
        raise NotProvedError("its model was not partitioned at the last refresh")
    changed = [
        # The window of a partition that vanished is still needed, to delete its rows.
        now.get(key) or before[key]
        for key in before.keys() | now.keys()
        if key not in before or key not in now or before[key].fingerprint != now[key].fingerprint
    ]
    spans = [each.span for each in changed if each.span]
    values = [str(each.partition) for each in changed if not each.span]
    return [
        *([_by_window(connection, change, column, spans=spans)] if spans else []),
        *([_by_value(connection, change, column, keys=sorted(values))] if values else []),
    ]


def _by_partition(snapshot: Snapshot) -> Mapping[str | None, Part]:
    return {part.partition: part for part in snapshot.parts}


def _by_value(
    connection: Connection, change: Change, column: str, *, keys: Sequence[str]
) -> KeyTable:
    table = key_table(change, "values", KeyMatch(column, "eq", "value"))
    values = ", ".join(f"({literal(key, change.type(column))})" for key in keys)
    columns = [change.column(column, called="value")]
    fill(connection, table, columns, f"VALUES {values}")
    return table


def _by_window(
    connection: Connection, change: Change, column: str, *, spans: Sequence[Span]
) -> KeyTable:
    table = key_table(
        change, "keys", KeyMatch(column, "gte", "start"), KeyMatch(column, "lt", "end")
    )
    cut, type_ = change.column(column), change.type(column)
    values = ", ".join(
        f"({literal(_edge(start, zone, cut), type_)}, {literal(_edge(end, zone, cut), type_)})"
        for start, end, zone in _merged(spans)
    )
    columns = [change.column(column, called=name) for name in ("start", "end")]
    fill(connection, table, columns, f"VALUES {values}")
    return table


def _merged(spans: Sequence[Span]) -> list[tuple[datetime, datetime, str]]:
    """Merge adjacent windows, which leaves the server fewer comparisons."""
    merged: list[tuple[datetime, datetime, str]] = []
    for span in sorted(spans, key=lambda span: span.start):
        if merged and merged[-1][1] == span.start:
            merged[-1] = (merged[-1][0], span.end, span.zone)
        else:
            merged.append((span.start, span.end, span.zone))
    return merged


def _edge(moment: datetime, zone: str, column: Column) -> str:
    """A moment as a literal: an instant by its column's zone, all else by the partitions' zone."""
    local = moment.astimezone(ZoneInfo(zone_of(column) or zone))
    return local.strftime("%Y-%m-%d" if column.type == "date" else "%Y-%m-%d %H:%M:%S")


# Compare many rows in little memory: by slices of their hashes.


# What hyperd needs to join two relations, for each row of the larger one (measured): on a hash, and
# more for each column that is compared.
_BYTES_OF_A_ROW, _BYTES_OF_A_COLUMN = 70, 14
# The share of hyperd's memory that a comparison may take.
_SHARE = 0.6
_MOST = 256

_T = TypeVar("_T")


def can_compare_columns(*, rows: int, columns: int, memory: int) -> bool:
    """Whether the memory is enough to compare all columns in one piece.

    Args:
        rows: the number of rows of the larger side.
        memory: the bytes that hyperd may use.
    """
    return rows * (_BYTES_OF_A_ROW + columns * _BYTES_OF_A_COLUMN) <= memory * _SHARE


def in_slices(compare: Callable[[int], _T], *, rows: int, memory: int) -> _T:
    """Compare in as many slices as the memory asks for, and in more if it fails nonetheless.

    Args:
        compare: is given the number of slices, a power of two; its result is returned.
        rows: the number of rows of the larger side.
        memory: the bytes that hyperd may use.

    Raises:
        NotProvedError: the memory is not enough for any number of slices.
    """
    needed = max(1.0, rows * _BYTES_OF_A_ROW / (memory * _SHARE))
    number = 2 ** math.ceil(math.log2(needed))
    while number <= _MOST:
        try:
            return compare(number)
        except HyperException as error:
            if not is_out_of_memory(error):
                raise
        number *= 4
    raise NotProvedError(
        f"comparing {rows:,} rows needs more than hyperd's memory of {megabytes(memory)}; raise "
        "HYPER_MEMORY_LIMIT"
    )


# Find the keys of changed rows: hyperd joins the rows of two versions.


# The only name that no column of a model can have.
_HASH = _DIFFERS = _EQUAL = escape_name(ROW_HASH)
# A temporary table: what a failed comparison has found must leave no gaps in the payload.
_FOUND = escape_name("differing keys")


def changed_keys(
    connection: Connection, change: Change, keys: KeyTable, *, memory: int
) -> int | None:
    """Fill a key table with the keys of the rows that only one of two versions has.

    Rows of shared files are in both. Those that have the key of a changed row are found by the
    proof.

    Args:
        memory: the bytes that hyperd may use.

    Returns:
        the number of pairs of rows that are equal in all columns; None if hashes were compared.

    Raises:
        NotProvedError: the memory is not enough.
    """
    sides = (change.unshared(change.new), change.unshared(change.published))
    rows = max(sum(file.rows for file in files) for files in sides)
    by_columns = _lacks_hashes(change) and can_compare_columns(
        rows=rows, columns=len(change.columns), memory=memory
    )

    def compare(slices: int) -> int | None:
        # A comparison that failed for want of memory may have left either.
        for table in (_FOUND, in_payload(keys.kind, keys.name)):
            connection.execute_command(f"DROP TABLE IF EXISTS {table}")
        columns = ", ".join(f"{escape_name(name)} {change.type(name)}" for name in keys.columns)
        connection.execute_command(f"CREATE TEMPORARY TABLE {_FOUND} ({columns}, {_EQUAL} BIGINT)")
        # More than one slice only if the memory was not enough.
        if by_columns and slices == 1:
            selects = [_by_columns(change, keys.columns)]
        else:
            selects = [_by_hash(change, keys.columns, index, slices) for index in range(slices)]
        for select in selects:
            connection.execute_command(f"INSERT INTO {_FOUND} {select}")
        equal = connection.execute_scalar_query(f"SELECT SUM({_EQUAL}) FROM {_FOUND}")  # noqa: S608
        _fill(connection, change, keys)
        connection.execute_command(f"DROP TABLE {_FOUND}")
        return int(str(equal or 0)) if by_columns and slices == 1 else None

    return in_slices(compare, rows=rows, memory=memory)


def _lacks_hashes(change: Change) -> bool:
    """Whether the hashes of rows would have to be computed, from all columns."""
    return not change.new.content.is_additive


def _by_hash(change: Change, key: Sequence[str], index: int, slices: int) -> str:
    """Return SQL for the keys of rows that only one version has."""
    # hyperd joins all rows faster if no condition misleads its estimate of their number.
    where = f"({_HASH} & {slices - 1}) = {index}" if slices > 1 else "TRUE"
    new, old = (
        f"(SELECT {names([*key, ROW_HASH])} FROM {rows} side WHERE {where})"  # noqa: S608
        for rows in _sides(change)
    )
    # Equal row hashes imply equal keys, and joining on one number is faster than on a composite
    # key. If hashes of different rows ever collide, the fingerprints do not add up.
    return (
        f"SELECT DISTINCT {_either(key)}, 0 "  # noqa: S608
        f"FROM {new} n FULL JOIN {old} o ON n.{_HASH} = o.{_HASH} "
        f"WHERE n.{_HASH} IS NULL OR o.{_HASH} IS NULL"
    )


def _by_columns(change: Change, key: Sequence[str]) -> str:
    """Return SQL for the keys of rows that differ, and for the number of pairs that do not.

    These pairs form one group, whose key is NULL.
    """
    new, old = _sides(change)
    columns = [escape_name(column.name) for column in change.columns]
    differs = " OR ".join(f"n.{name} IS DISTINCT FROM o.{name}" for name in columns)
    same_key = " AND ".join(f"n.{name} = o.{name}" for name in map(escape_name, key))
    keys = ", ".join(f"CASE WHEN {_DIFFERS} THEN {name} END" for name in map(escape_name, key))
    return (
        f"SELECT {keys}, SUM(CASE WHEN {_DIFFERS} THEN 0 ELSE 1 END) "  # noqa: S608
        f"FROM (SELECT {_either(key)}, {differs} AS {_DIFFERS} "
        f"FROM {new} n FULL JOIN {old} o ON {same_key}) pairs "
        f"GROUP BY {', '.join(str(number) for number, _ in enumerate(key, 1))}"
    )


def _sides(change: Change) -> tuple[str, str]:
    return change.new.rows(change.unshared(change.new)), change.surviving()


def _either(key: Sequence[str]) -> str:
    return ", ".join(f"COALESCE(n.{name}, o.{name}) AS {name}" for name in map(escape_name, key))


def _fill(connection: Connection, change: Change, keys: KeyTable) -> None:
    columns = [change.column(name) for name in keys.columns]
    # A key with a NULL matches no row on the server, so it names nothing.
    complete = " AND ".join(f"{escape_name(name)} IS NOT NULL" for name in keys.columns)
    # A changed row has another hash, so its key may be found in two slices.
    select = f"SELECT DISTINCT {names(keys.columns)} FROM {_FOUND} WHERE {complete}"  # noqa: S608
    fill(connection, keys, columns, select)


# Find the rows that a policy affects: hyperd compares published and desired rows.


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
