"""Find the affected rows of a table: an update deletes them and inserts their current version.

The payload, the `.hyper` file of an update, contains small tables: the key tables. A row is
affected if it matches a row of any key table. Key tables hold keys, the time windows of partitions,
and the cutoff, which is the start of a table's rolling window. Not all of these values can be
constants in an action batch: constants can be neither decimals nor dates, and constant time stamps
have no microseconds.
"""

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import time
from operator import attrgetter
from typing import Literal, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from tableauhyperapi import Connection, HyperException, TableName, escape_name

from tableau_pipeline.actions.batch import Delete, all_of, source, target
from tableau_pipeline.core.checkpoint import Cutoff
from tableau_pipeline.core.declaration import Table
from tableau_pipeline.core.policies import Append, Diff, Feed, Partitions, Policy, ReplaceAll
from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Snapshot, Span
from tableau_pipeline.extracts.content import (
    Models,
    cutoff_value,
    literal,
    retained,
    table_source,
    type_of,
)
from tableau_pipeline.hyper.build import NEW, create_table
from tableau_pipeline.hyper.messages import is_out_of_memory
from tableau_pipeline.hyper.parquet import TableSource, names, select_sql
from tableau_pipeline.hyper.types import ROW_HASH, Column, is_moment, zone_of
from tableau_pipeline.rendering import megabytes

_T = TypeVar("_T")
MatchKind = Literal["keys", "expired", "values"]
_OPERATORS = {"=": operator.eq, "<": operator.lt, ">=": operator.ge}


class NotProvedError(Exception):
    """No delta is proved to give the desired content; the message is a phrase with the reason.

    A delta is an update of only the affected rows.
    """


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The published or desired content of a table, with the snapshot that holds its rows.

    Attributes:
        cutoff: the start of the rolling window; None if every row of the snapshot counts.
    """

    snapshot: Snapshot
    content: Fingerprint
    cutoff: Cutoff | None

    def select_sql(
        self, files: Iterable[DataFile] | None = None, only: Collection[str] | None = None
    ) -> str:
        """Return SQL for the rows in `files`; for all rows if `files` is None.

        Args:
            only: the columns to read; None for all columns and the hash of each row.
        """
        if only is not None and self.cutoff:
            only = {*only, self.cutoff.column}
        source = table_source(
            "", self.snapshot, self.cutoff, hashed=only is None, only=only, files=files
        )
        return select_sql(source)


@dataclass(frozen=True, slots=True)
class TableChange:
    """One table of an update: its published version and its desired version.

    The two versions share the files of partitions that were not rewritten in between. A lake may
    delete rows without rewriting their file; both versions then share the rows that both keep. If
    the new cutoff may keep rows that the old cutoff drops, no file counts as shared. The rows of
    shared files need no comparison, and most of these rows are not even read.

    Attributes:
        old: the published version. None if its rows are not available; the whole table is then
            sent.
        published_rows: the number of published rows.
        whole: the reason to send the whole table; None if a smaller update may be enough.
    """

    table: Table
    columns: tuple[Column, ...]
    new: TableVersion
    old: TableVersion | None
    published_rows: int
    whole: str | None = None

    def type(self, name: str) -> str:
        """Return the Hyper type of a column."""
        return type_of(self.columns, name)

    @property
    def published(self) -> TableVersion:
        """The published version.

        Raises:
            NotProvedError: the published rows are not available.
        """
        if self.old is None:
            raise NotProvedError("the snapshot that is published is gone")
        return self.old

    @property
    def shared(self) -> tuple[DataFile, ...]:
        """The files, or parts of files, that both versions contain.

        Empty if the new cutoff may keep rows that the old cutoff drops.
        """
        old, new = self.published.cutoff, self.new.cutoff
        # Compare the cutoffs as text: the texts of dates and time stamps sort in the order of time.
        cut_as_late = (
            old is None
            or old == new
            or (new is not None and new.column == old.column and new.value >= old.value)
        )
        published = self.published.snapshot.files if cut_as_late else ()
        others = {(file.name, file.layout): file for file in published}
        pairs = ((file, others.get((file.name, file.layout))) for file in self.new.snapshot.files)
        common = (file.common(other) for file, other in pairs if other)
        return tuple(file for file in common if file.rows)

    def unshared(self, version: TableVersion) -> tuple[DataFile, ...]:
        """Return the files, or parts of files, that only this version contains."""
        shared = {file.name: file for file in self.shared}
        rest = (file.without(shared.get(file.name)) for file in version.snapshot.files)
        return tuple(file for file in rest if file.rows)

    def desired(self, files: Iterable[DataFile]) -> TableSource:
        """Return the rows of `files`, files of the new version, that the new cutoff keeps."""
        return table_source(self.table.name, self.new.snapshot, self.new.cutoff, files=files)

    def added_sql(self, only: Collection[str] | None = None) -> str:
        """Return SQL for the rows in unshared files of the new version.

        Args:
            only: see `TableVersion.select_sql`.
        """
        return self.new.select_sql(self.unshared(self.new), only)

    def surviving_sql(self, only: Collection[str] | None = None) -> str:
        """Return SQL for the rows in unshared published files that the new cutoff keeps.

        Args:
            only: see `TableVersion.select_sql`.
        """
        if only is not None and self.new.cutoff:
            only = {*only, self.new.cutoff.column}
        unshared = self.published.select_sql(self.unshared(self.published), only)
        # Leave out the rows before the new cutoff, which would count as changed. They need no keys,
        # because the key table of the cutoff already matches them.
        if self.new.cutoff in (None, self.published.cutoff):
            return unshared
        return f"(SELECT * FROM {unshared} old WHERE {retained(self.columns, self.new.cutoff)})"  # noqa: S608


class KeyMatch(NamedTuple):
    """A condition that compares the `column` of a row with the column `by` of a key table."""

    column: str
    operator: Literal["=", "<", ">="]
    by: str


@dataclass(frozen=True, slots=True)
class KeyTable:
    """A key table of the payload; `kind` names its schema, `matches` selects affected rows."""

    change: TableChange
    kind: MatchKind
    matches: tuple[KeyMatch, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of this table's columns: only compared columns, as the server requires."""
        return tuple(dict.fromkeys(match.by for match in self.matches))

    @property
    def unfinished(self) -> TableName:
        """The name of the table while the payload is being written."""
        return in_payload(self.kind, self.change)

    def fill(self, connection: Connection, select: str) -> None:
        """Create the table in the payload from the rows of a query."""
        types = {match.by: self.change.type(match.column) for match in self.matches}
        create_table(connection, self.unfinished, types)
        connection.execute_command(f"INSERT INTO {self.unfinished} {select}")

    @property
    def affects(self) -> str:
        """SQL that is true for those rows of the relation `source` that match this table."""
        matches = " AND ".join(
            f"source.{escape_name(column)} {operator} keys.{escape_name(by)}"
            for column, operator, by in self.matches
        )
        return f"EXISTS (SELECT 1 FROM {self.unfinished} keys WHERE {matches})"  # noqa: S608

    def delete(self, published: TableName) -> Delete:
        """Return the action that deletes the matching rows."""
        matches = [_OPERATORS[sign](target(name), source(by)) for name, sign, by in self.matches]
        finished = TableName(self.kind, self.change.table.name)
        return Delete(target=published, source=finished, where=all_of(matches))


def in_payload(schema: str, change: TableChange) -> TableName:
    """Return the name of a table of the payload while it is being written."""
    return TableName(NEW, schema, change.table.name)


def affected(keys: Sequence[KeyTable]) -> str:
    """Return SQL that is true for the affected rows of the relation `source`."""
    return f"({' OR '.join(table.affects for table in keys) or 'FALSE'})"


def find_affected(
    connection: Connection, change: TableChange, policy: Policy, models: Models, *, memory: int
) -> tuple[list[KeyTable], int | None]:
    """Find the rows of a table that an update by this refresh policy would replace.

    Args:
        memory: the bytes that hyperd may use.

    Returns:
        The key tables, and the number of equal pairs, or None if columns were not compared. An
        equal pair is a published row and a desired row that are equal in all columns. Both rows are
        in files that the versions do not share.

    Raises:
        NotProvedError: the policy cannot determine the affected rows.
    """
    equal = None
    match policy:
        case Diff(key, feed):
            table = KeyTable(change, "keys", tuple(KeyMatch(name, "=", name) for name in key))
            if feed:
                _named_keys(connection, table, feed=feed, changes=models[feed.model])
            else:
                equal = _changed_keys(connection, table, memory=memory)
            keys = [table]
        case Append(cursor, lookback):
            keys = [_from_cursor(connection, change, cursor, lookback)]
        case Partitions(column):
            keys = _changed_partitions(connection, change, column)
        case ReplaceAll():
            raise NotProvedError("its refresh is replace")
    cutoff = change.new.cutoff
    if cutoff and change.published.cutoff != cutoff:
        expired = KeyTable(change, "expired", (KeyMatch(cutoff.column, "<", "cutoff"),))
        expired.fill(connection, f"SELECT {cutoff_value(change.columns, cutoff)}")
        keys.insert(0, expired)
    return keys, equal


def _named_keys(connection: Connection, keys: KeyTable, *, feed: Feed, changes: Snapshot) -> None:
    """Fill a key table with the keys in a feed, a model that lists the keys of changed rows."""
    # Cast the keys, because they may have another type in the feed, and the server compares only
    # values of the same type.
    feed_columns = dict(feed.columns)
    columns = [feed_columns.get(name, name) for name in keys.columns]
    types = map(keys.change.type, keys.columns)
    values = ", ".join(
        f"CAST({escape_name(column)} AS {type_})"
        for column, type_ in zip(columns, types, strict=True)
    )
    feed_rows = select_sql(table_source(feed.model, changes, only=columns))
    where = _without_nulls(columns)
    try:
        keys.fill(connection, f"SELECT DISTINCT {values} FROM {feed_rows} feed WHERE {where}")  # noqa: S608
    except HyperException as error:
        # A value of the feed may not fit the type of the table. For example, an empty text is not a
        # number. hyperd cannot skip such a value, because even its TRY_CAST fails for most types.
        reason = str(error).splitlines()[0].rstrip(": ")
        raise NotProvedError(
            f'the feed "{feed.model}" has keys that do not fit the table ({reason})'
        ) from error


def _without_nulls(key: Sequence[str]) -> str:
    """Return SQL that is true for keys without NULL; keys with NULL match no row on the server."""
    return " AND ".join(f"{escape_name(name)} IS NOT NULL" for name in key)


def _from_cursor(
    connection: Connection, change: TableChange, cursor: str, lookback: int | str | None
) -> KeyTable:
    """Return the key table of an append: one row, the last published cursor minus `lookback`."""
    keys = KeyTable(change, "keys", (KeyMatch(cursor, ">=", "start"),))
    published = change.published.select_sql(only=(cursor,))
    last = f"(SELECT MAX({escape_name(cursor)}) AS last FROM {published} old)"  # noqa: S608
    if connection.execute_scalar_query(f"SELECT last IS NULL FROM {last} ends"):  # noqa: S608
        raise NotProvedError(f"no published row has a {cursor} to continue from")
    is_number = isinstance(lookback, int) or re.fullmatch(r"\d+", lookback or "")
    span = f" - {lookback}" if is_number else f" - INTERVAL '{lookback}'" if lookback else ""
    # Cast, because a date minus an interval is a timestamp.
    keys.fill(connection, f"SELECT CAST(last{span} AS {change.type(cursor)}) FROM {last} ends")  # noqa: S608
    return keys


def _changed_partitions(connection: Connection, change: TableChange, column: str) -> list[KeyTable]:
    """Return key tables with the time windows, or the values, of changed partitions.

    Removed and new partitions count as changed.
    """
    old_parts, new_parts = (
        {part.partition: part for part in version.snapshot.parts}
        for version in (change.published, change.new)
    )
    if None in old_parts:
        raise NotProvedError("its model was not partitioned at the last refresh")
    changed = [
        # Include removed partitions, because only their time windows or values identify the rows
        # to delete.
        new_parts.get(key) or old_parts[key]
        for key in old_parts.keys() | new_parts.keys()
        if key not in old_parts
        or key not in new_parts
        or old_parts[key].fingerprint != new_parts[key].fingerprint
    ]
    spans = [part.span for part in changed if part.span]
    values = sorted(str(part.partition) for part in changed if not part.span)
    type_, key_tables = change.type(column), list[tuple[KeyTable, list[str]]]()
    if spans:
        matches = KeyMatch(column, ">=", "start"), KeyMatch(column, "<", "end")
        (partition_column,) = (other for other in change.columns if other.name == column)
        windows = _merged_windows(spans, partition_column)
        rows = [f"({literal(start, type_)}, {literal(end, type_)})" for start, end in windows]
        key_tables.append((KeyTable(change, "keys", matches), rows))
    if values:
        rows = [f"({literal(value, type_)})" for value in values]
        key_tables.append((KeyTable(change, "values", (KeyMatch(column, "=", "value"),)), rows))
    for table, rows in key_tables:
        try:
            table.fill(connection, f"VALUES {', '.join(rows)}")
        except HyperException as error:
            reason = str(error).splitlines()[0].rstrip(": ")
            raise NotProvedError(
                f'partitions of its model are not values of "{column}" ({type_}): {reason}'
            ) from error
    return [table for table, _ in key_tables]


def _merged_windows(spans: Sequence[Span], column: Column) -> Iterator[tuple[str, ...]]:
    """Merge adjacent time windows, so that the server compares less; yield their edges as text.

    If the column holds instants, the edges are in the zone of the column; if not, they are in the
    zone of the partitions.
    """
    merged: list[Span] = []
    for span in sorted(spans, key=attrgetter("start")):
        if merged and merged[-1].end == span.start:
            span = span.model_copy(update={"start": merged.pop().start})
        merged.append(span)
    zones = [ZoneInfo(zone_of(column) or span.zone) for span in merged]
    edges = [
        tuple(edge.astimezone(zone) for edge in (span.start, span.end))
        for span, zone in zip(merged, zones, strict=True)
    ]
    form = "%Y-%m-%d" if column.type == "date" else "%Y-%m-%d %H:%M:%S"
    if all(edge.time() == time() for pair in edges for edge in pair) and not is_moment(column):
        # In star schemas, the key of a day is often a number such as 20240101. If the numbers in
        # the column have another meaning, no delta is proved, and the whole table is sent.
        form = "%Y%m%d" if column.type in ("int", "bigint") else "%Y-%m-%d"
    for pair in edges:
        yield tuple(edge.strftime(form) for edge in pair)


# Two large versions are compared slice by slice, to save memory. A slice contains the rows whose
# hashes end in the same bits.

# The bytes of memory that hyperd needs to join two relations, as measured. _ROW_BYTES: for each row
# of the larger relation. _COLUMN_BYTES: for each further compared value of such a row.
_ROW_BYTES, _COLUMN_BYTES = 70, 14
# The share of hyperd's memory that a comparison may take.
_MEMORY_SHARE = 0.6
_MAX_SLICES = 256
# All three use the name of the row hash, because no column of a model may have this name.
_HASH = _DIFFERS = _EQUAL = escape_name(ROW_HASH)
# Collect keys in a temporary table. A table in the payload would leave a gap in the file when a
# comparison fails and the table is dropped.
_DIFFERING = escape_name("differing keys")


def _changed_keys(connection: Connection, keys: KeyTable, *, memory: int) -> int | None:
    """Fill a key table with the keys of rows that are in only one version.

    The rows of shared files are not compared, because both versions have these rows. Such a row is
    affected, too, if a changed row has the same key: the delta deletes it and inserts it again.

    Return the number of equal pairs; see `find_affected`.
    """
    change = keys.change
    sides = (change.unshared(change.new), change.unshared(change.published))
    rows = max(sum(file.rows for file in files) for files in sides)
    needed = rows * (_ROW_BYTES + _COLUMN_BYTES * len(change.columns))
    # Snapshots of Spark store the hashes of rows. For other snapshots, compare the columns if the
    # memory is enough; if it is not, hyperd has to compute a hash from all columns.
    by_columns = not change.new.content.is_additive and needed <= memory * _MEMORY_SHARE

    def compare(slices: int) -> int | None:
        # Drop the tables that an earlier attempt may have left when it ran out of memory.
        for table in (_DIFFERING, keys.unfinished):
            connection.execute_command(f"DROP TABLE IF EXISTS {table}")
        columns = ", ".join(f"{escape_name(name)} {change.type(name)}" for name in keys.columns)
        connection.execute_command(
            f"CREATE TEMPORARY TABLE {_DIFFERING} ({columns}, {_EQUAL} BIGINT)"
        )
        # Compare columns only if there is one slice. More slices mean that the memory is not enough
        # to compare columns, and slices are cut by the hashes of rows.
        if compares_columns := by_columns and slices == 1:
            selects = [_by_columns(change, keys.columns)]
        else:
            selects = [_by_hash(change, keys.columns, index, slices) for index in range(slices)]
        for select in selects:
            connection.execute_command(f"INSERT INTO {_DIFFERING} {select}")
        equal = connection.execute_scalar_query(f"SELECT SUM({_EQUAL}) FROM {_DIFFERING}")  # noqa: S608
        # Use DISTINCT, because two slices may add the same key. The old hash of a changed row may
        # be in one slice, and the new hash in another.
        key, where = names(keys.columns), _without_nulls(keys.columns)
        keys.fill(connection, f"SELECT DISTINCT {key} FROM {_DIFFERING} WHERE {where}")  # noqa: S608
        connection.execute_command(f"DROP TABLE {_DIFFERING}")
        return int(str(equal or 0)) if compares_columns else None

    return in_slices(compare, rows=rows, memory=memory)


def in_slices(compare: Callable[[int], _T], *, rows: int, memory: int, columns: int = 0) -> _T:
    """Call `compare` with the number of slices that the memory requires; return its result.

    Args:
        compare: a function of the number of slices, a power of two. If hyperd runs out of memory,
            `compare` is called again with more slices.
        rows: the number of rows of the larger side.
        columns: the number of columns that are compared in addition to one hash.
        memory: the bytes that hyperd may use.

    Raises:
        NotProvedError: the memory is not enough, even with the largest number of slices.
    """
    needed = max(1.0, rows * (_ROW_BYTES + _COLUMN_BYTES * columns) / (memory * _MEMORY_SHARE))
    number = 2 ** math.ceil(math.log2(needed))
    while number <= _MAX_SLICES:
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


def _by_hash(change: TableChange, key: Sequence[str], index: int, slices: int) -> str:
    """Return SQL for the keys of those rows of one slice that only one version has."""
    # For a single slice, use no condition on the hash. Such a condition would mislead hyperd's
    # estimate of the number of rows, and slow down the join.
    where = f"({_HASH} & {slices - 1}) = {index}" if slices > 1 else "TRUE"
    new, old = (
        f"(SELECT {names([*key, ROW_HASH])} FROM {rows} side WHERE {where})"  # noqa: S608
        for rows in (change.added_sql(), change.surviving_sql())
    )
    # Join on the hash, because joining on one number is faster than joining on a composite key.
    # Rows with equal hashes count as equal rows: with 64 bits, different rows hardly ever have the
    # same hash.
    return (
        f"SELECT DISTINCT {_pair_key(key)}, 0 "  # noqa: S608
        f"FROM {new} n FULL JOIN {old} o ON n.{_HASH} = o.{_HASH} "
        f"WHERE n.{_HASH} IS NULL OR o.{_HASH} IS NULL"
    )


def _by_columns(change: TableChange, key: Sequence[str]) -> str:
    """Return SQL for the keys of rows that differ, and for the number of equal pairs.

    One row of the result counts the equal pairs: its key is NULL, and its last value is the count.
    """
    # If rows were only removed or only added, all of them differ: compare only the key.
    is_compared = change.unshared(change.new) and change.unshared(change.published)
    compared = [column.name for column in change.columns] if is_compared else key
    differs = " OR ".join(
        f"n.{name} IS DISTINCT FROM o.{name}" for name in map(escape_name, compared)
    )
    same_key = " AND ".join(f"n.{name} = o.{name}" for name in map(escape_name, key))
    keys = ", ".join(f"CASE WHEN {_DIFFERS} THEN {name} END" for name in map(escape_name, key))
    new, old = change.added_sql(compared), change.surviving_sql(compared)
    return (
        f"SELECT {keys}, SUM(CASE WHEN {_DIFFERS} THEN 0 ELSE 1 END) "  # noqa: S608
        f"FROM (SELECT {_pair_key(key)}, {differs} AS {_DIFFERS} "
        f"FROM {new} n FULL JOIN {old} o ON {same_key}) pairs "
        f"GROUP BY {', '.join(str(number) for number, _ in enumerate(key, 1))}"
    )


def _pair_key(key: Sequence[str]) -> str:
    """Return SQL for the key of a joined pair; one of its two rows may be missing."""
    return ", ".join(f"COALESCE(n.{name}, o.{name}) AS {name}" for name in map(escape_name, key))
