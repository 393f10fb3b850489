"""Build deltas: updates of tables that provably give the desired content.

A delta has a payload, which is a `.hyper` file, and the actions that the server applies with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import get_args

from tableauhyperapi import Connection, HyperProcess, TableName, escape_name

from tableau_pipeline.actions.batch import Action, Batch, Insert, Replace
from tableau_pipeline.core.policies import Diff
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.extracts.affected_rows import (
    KeyMatch,
    KeyTable,
    MatchKind,
    NotProvedError,
    TableChange,
    TableVersion,
    affected,
    find_affected,
    in_payload,
)
from tableau_pipeline.extracts.content import Models, fingerprint, row_count
from tableau_pipeline.hyper.build import Extract, create_table, new_file, rows_in
from tableau_pipeline.hyper.parquet import names, row_text
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.types import ROW_HASH, Column, file_version

# The schema of the payload that contains the tables of rows to insert.
ROWS = "rows"


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The row counts of a table's update; `whole` is the reason to send the whole table, if any."""

    deleted: int
    inserted: int
    whole: str | None = None


@dataclass(frozen=True, slots=True)
class TableDelta:
    """The part of a delta for one table: its counts and its key tables.

    Attributes:
        is_identified: true if the policy is a `diff` whose key identifies every new row. This
            relies on an earlier check that the key identifies every published row.
    """

    change: TableChange
    target: TableName
    counts: RowCounts
    keys: Sequence[KeyTable] = ()
    is_identified: bool = False

    @property
    def actions(self) -> list[Action]:
        """The actions that the server applies."""
        rows = TableName(ROWS, self.change.table.name)
        if self.counts.whole:
            return [Replace(target=self.target, source=rows)]
        # Delete first, because the keys match both the published rows and the new rows.
        deletes: list[Action] = [keys.delete(self.target) for keys in self.keys]
        insert = [Insert(target=self.target, source=rows)] if self.counts.inserted else []
        return [*deletes, *insert]


@dataclass(frozen=True, slots=True)
class Delta:
    """An update that is ready to be sent; `extract` is its payload, with the rows to insert."""

    extract: Extract
    tables: Sequence[TableDelta]

    @classmethod
    def of(cls, path: Path, tables: Sequence[TableDelta], *, version: int) -> "Delta":
        """Return the delta whose payload was written to `path`."""
        rows = {table.change.table.name: table.counts.inserted for table in tables}
        return cls(Extract(path, rows, path.stat().st_size, version), tables)

    @property
    def counts(self) -> Mapping[str, RowCounts]:
        """The row counts of each table, by name."""
        return {table.change.table.name: table.counts for table in self.tables}

    @property
    def batch(self) -> Batch:
        """All actions in one batch."""
        return Batch([action for table in self.tables for action in table.actions])


def build_delta(
    hyper: Hyperd,
    path: Path,
    *,
    changes: Sequence[TableChange],
    targets: Mapping[str, TableName],
    models: Models,
) -> Delta:
    """Write the payload of an update that turns the published content into the desired content.

    For each table, the update deletes the affected rows and inserts their current version.
    Fingerprints (row counts and, if necessary, sums of row hashes) prove that this is enough: the
    unaffected rows must have the same fingerprint in the published and in the desired content. If
    the proof fails for a table, the whole table is sent.

    Args:
        changes: the tables that change.
        targets: maps the declared name of each table to its name in the published file.
    """
    version = file_version(column for change in changes for column in change.columns)
    with new_file(hyper, path, version=version) as connection:
        tables = [
            _table_delta(
                connection, change, targets[change.table.name], models, memory=hyper.memory
            )
            for change in changes
        ]
    return Delta.of(path, tables, version=version)


def _table_delta(
    connection: Connection, change: TableChange, target: TableName, models: Models, *, memory: int
) -> TableDelta:
    """Write the delta of the refresh policy; write the whole table if no delta can be proved."""
    policies, reasons = [change.table.policy], []
    if isinstance(policies[0], Diff) and policies[0].feed:
        # The feed, a model that lists changed keys, may lack a key. If the delta by the feed is not
        # proved, compare all rows.
        policies.append(Diff(policies[0].key))
    if change.whole:
        policies, reasons = [], [change.whole]
    for policy in policies:
        try:
            keys, equal = find_affected(connection, change, policy, models, memory=memory)
            deleted, inserted, shared = prove(connection, change, keys, equal=equal)
        except NotProvedError as error:
            reasons.append(str(error))
            # Drop the key tables of the failed attempt from the payload.
            for kind in get_args(MatchKind):
                connection.execute_command(f"DROP TABLE IF EXISTS {in_payload(kind, change)}")
            continue
        if inserted:
            # Read the files that both versions share only if these files have affected rows,
            # because the insert reads all columns.
            relations = [change.new.select_sql(change.shared)] if shared else []
            _insert(connection, change, change.added_sql(), *relations, where=affected(keys))
        counts, is_identified = RowCounts(deleted, inserted), isinstance(policy, Diff)
        if isinstance(policy, Diff) and inserted:
            # Check the keys of the inserted rows only: unaffected rows are unchanged, and share no
            # key with affected rows. NULL keys need no check: a new row with a NULL key never
            # counts as affected, so `prove` would have raised an error.
            key = f"(SELECT DISTINCT {names(policy.key)} FROM {in_payload(ROWS, change)}) keys"  # noqa: S608
            is_identified = rows_in(connection, key) == inserted
        return TableDelta(change, target, counts, keys, is_identified=is_identified)
    inserted = _insert(connection, change, change.new.select_sql())
    whole = RowCounts(change.published_rows, inserted, whole="; ".join(reasons))
    return TableDelta(change, target, whole)


def prove(
    connection: Connection, change: TableChange, keys: Sequence[KeyTable], *, equal: int | None
) -> tuple[int, int, int]:
    """Check that the unaffected rows are the same in the published and the desired content.

    Args:
        equal: the number of equal pairs (see `find_affected`); None if columns were not compared.

    Returns:
        Three counts of affected rows: in the published content, in the desired content, and in the
        shared files of the desired content.

    Raises:
        NotProvedError: the unaffected rows are not the same.
    """
    new, old = change.new, change.published
    where = affected(keys)
    # If all columns were compared, counts are enough. No key is in two equal pairs. So if each
    # version has `equal` unaffected rows, these rows form the equal pairs.
    measure = fingerprint if equal is None else row_count
    # To count rows, read only the columns that decide which rows are affected.
    matched = {match.column for table in keys for match in table.matches} or None

    def shared_rows(version: TableVersion) -> Fingerprint:
        """Return the fingerprint of the affected rows in shared files."""
        # Use hashes only if they are stored; computing them would read all columns.
        is_additive = version.content.is_additive
        rows = version.select_sql(change.shared, None if is_additive else matched)
        measure = fingerprint if is_additive else row_count
        return measure(connection, f"{rows} source WHERE {where}")

    def count_rows(version: TableVersion, shared: Fingerprint) -> tuple[int, Fingerprint]:
        """Return the number of affected rows, and the fingerprint of unaffected rows."""
        only = None if equal is None else matched
        rows = f"{version.select_sql(change.unshared(version), only)} source"
        affected_rows = measure(connection, f"{rows} WHERE {where}")
        if version.content.is_additive:
            others = version.content - shared
        else:
            # Compare only unshared files: both versions have the same rows in shared files.
            others = measure(connection, rows)
        return affected_rows.rows + shared.rows, others - affected_rows

    shared = shared_rows(new)
    inserted, rest = count_rows(new, shared)
    deleted, published = count_rows(old, shared if new.cutoff == old.cutoff else shared_rows(old))
    if problem := _problem(published, rest, equal):
        message = f"rows changed beyond those that its refresh policy affects: {problem}"
        raise NotProvedError(message)
    return deleted, inserted, shared.rows


def _problem(published: Fingerprint, rest: Fingerprint, equal: int | None) -> str | None:
    """Describe how the unaffected rows of both versions differ; None if they do not differ."""
    if published.rows != rest.rows:
        return f"of the other rows, {rest.rows:,} are desired and {published.rows:,} are published"
    if published != rest:
        return f"the {rest.rows:,} other rows differ from the published rows"
    if equal not in (None, rest.rows):
        return f"of the {rest.rows:,} other rows, only {equal:,} equal published rows"
    return None


def differing_rows(
    connection: Connection, change: TableChange, columns_before: Sequence[Column]
) -> tuple[int, int]:
    """Return the number of rows in only the desired version, and in only the published version.

    Rows are compared in the columns that both versions have.
    """
    new, old = change.new, change.published
    common = [column for column in change.columns if column in columns_before]
    if (*common,) == (*change.columns,) == (*columns_before,):
        hash_ = escape_name(ROW_HASH)
    else:
        hash_ = f"sha256({row_text(common)})" if common else "0"
    # Both versions have the same rows in shared files if their cutoffs and columns are equal.
    is_shared = new.cutoff == old.cutoff and len(common) == len(change.columns)
    sides = (
        version.select_sql(change.unshared(version) if is_shared else None)
        for version in (new, old)
    )
    now, before = (
        f"(SELECT h, COUNT(*) AS n FROM (SELECT {hash_} AS h FROM {side} source) hashed GROUP BY h)"  # noqa: S608
        for side in sides
    )
    more, fewer = "COALESCE(a.n, 0) - COALESCE(b.n, 0)", "COALESCE(b.n, 0) - COALESCE(a.n, 0)"
    (counts,) = connection.execute_list_query(
        f"SELECT SUM(CASE WHEN {more} > 0 THEN {more} ELSE 0 END), "  # noqa: S608
        f"SUM(CASE WHEN {fewer} > 0 THEN {fewer} ELSE 0 END) "
        f"FROM {now} a FULL JOIN {before} b ON a.h = b.h"
    )
    # In hyperd, the sum over no rows is NULL.
    only_new, only_old = (int(str(count or 0)) for count in counts)
    return only_new, only_old


def _insert(
    connection: Connection, change: TableChange, *relations: str, where: str = "TRUE"
) -> int:
    """Create the payload's table of rows to insert, from relations; return the number of rows.

    Args:
        where: an SQL condition for the rows, in which each relation has the name `source`.
    """
    table, columns = in_payload(ROWS, change), [column.name for column in change.columns]
    create_table(connection, table, {name: change.type(name) for name in columns})
    selects = (
        f"SELECT {names(columns)} FROM {relation} source WHERE {where}"  # noqa: S608
        for relation in relations
    )
    return sum(
        connection.execute_command(f"INSERT INTO {table} {select}") or 0 for select in selects
    )


# A split delta consists of consecutive updates. Each update deletes and inserts the affected rows
# of its own keys, time windows or range of the cursor. So readers see each row in its old or in its
# new version, even between two updates. All updates are cut from one payload, so the versions are
# compared only once.

# The payloads of a split delta are together larger than one payload, because each file has some
# overhead.
_OVERHEAD = 1.3
# The name of the database with the undivided payload, and a column name that none of its tables
# uses.
_WHOLE, _RANK = "whole", escape_name("_rank")


def split_delta(hyper: HyperProcess, delta: Delta, limit: int) -> list[Delta]:
    """Split an update into several updates, each with a payload of at most `limit` bytes.

    The first update contains all tables that are sent whole. Return [] if no split is fine enough.
    """
    if limit <= 0:
        return []
    least = ceil(delta.extract.size / limit * _OVERHEAD)
    # If a part exceeds the limit, try more parts, because parts differ in size.
    for count in (least, 2 * least, 4 * least):
        parts: list[Delta] = []
        for index in range(count):
            part = _part(hyper, delta, index, count)
            parts.append(part)
            if part.extract.size > limit:
                break
        else:
            return parts
        for part in parts:
            part.extract.path.unlink()
    return []


def _part(hyper: HyperProcess, delta: Delta, index: int, of: int) -> Delta:
    """Write part number `index` (from 0) of a delta that is split into `of` parts."""
    whole = delta.extract
    path = whole.path.with_name(f"{whole.path.stem}-{index + 1}-of-{of}.hyper")
    with new_file(hyper, path, version=whole.version) as connection:
        connection.catalog.attach_database(whole.path, _WHOLE)
        parts = [
            _table_part(connection, table, index, of)
            for table in delta.tables
            # Put a table that is sent whole into the first part. If such a table were split, it
            # would lack rows on the server until the last part.
            if not (index and table.counts.whole)
        ]
        connection.catalog.detach_database(_WHOLE)
    return Delta.of(path, parts, version=whole.version)


def _table_part(connection: Connection, delta: TableDelta, index: int, of: int) -> TableDelta:
    """Write part number `index` (from 0) of the delta of one table; there are `of` parts."""
    change, counts = delta.change, delta.counts
    rows = TableName(_WHOLE, ROWS, change.table.name)
    if counts.whole:
        _insert(connection, change, str(rows))
        return delta
    part_keys = []
    for keys in delta.keys:
        table = TableName(_WHOLE, keys.kind, change.table.name)
        # The key table of an append has only one row, the start of the range of cursors. So
        # divide the range.
        is_append = [match.operator for match in keys.matches] == [">="]
        if is_append and counts.inserted:
            part_keys.append(_fill_range(connection, keys, table, rows, index=index, of=of))
            continue
        # Deal out the keys by rank, so that all parts get about the same number of keys.
        columns = names(keys.columns)
        ranked = f"SELECT {columns}, ROW_NUMBER() OVER (ORDER BY {columns}) AS {_RANK} FROM {table}"  # noqa: S608
        where = f"{_RANK} % {of} = {index}"
        keys.fill(connection, f"SELECT {columns} FROM ({ranked}) ranked WHERE {where}")  # noqa: S608
        part_keys.append(keys)
    inserted = 0
    if counts.inserted:
        inserted = _insert(connection, change, str(rows), where=affected(part_keys))
    return replace(delta, keys=part_keys, counts=replace(counts, inserted=inserted))


def _fill_range(
    connection: Connection,
    keys: KeyTable,
    table: TableName,
    rows: TableName,
    *,
    index: int,
    of: int,
) -> KeyTable:
    """Fill the key table of an append with one range of the cursor; the last range has no end."""
    (match,) = keys.matches
    cursor, start = escape_name(match.column), escape_name(match.by)
    # NTILE deals out the rows to tiles, and each tile starts a range. One value of the cursor may
    # fill several tiles, which then have the same start. UNION merges equal starts, so there may be
    # fewer ranges than parts. The remaining parts get an empty key table and affect no rows.
    starts = (
        "SELECT start, LEAD(start) OVER (ORDER BY start) AS stop, "  # noqa: S608
        "ROW_NUMBER() OVER (ORDER BY start) - 1 AS rank "
        f"FROM (SELECT {start} AS start FROM {table} "
        f"UNION SELECT MIN({cursor}) FROM (SELECT {cursor}, NTILE({of}) "
        f"OVER (ORDER BY {cursor}) AS {_RANK} FROM {rows}) tiled "
        f"WHERE {_RANK} > 1 GROUP BY {_RANK}) starts"
    )
    this = f"FROM ({starts}) ranges WHERE rank = {index}"
    if connection.execute_scalar_query(f"SELECT COUNT(*) {this} AND stop IS NULL"):
        keys.fill(connection, f"SELECT start {this}")
        return keys
    bounded = replace(keys, matches=(match, KeyMatch(match.column, "<", "stop")))
    bounded.fill(connection, f"SELECT start, stop {this}")
    return bounded


def counts(deltas: Sequence[Delta]) -> dict[str, RowCounts]:
    """Return the counts of a split delta: each part counts all deletes, so sum only the inserts."""
    totals: dict[str, RowCounts] = {}
    for delta in deltas:
        for name, part in delta.counts.items():
            earlier = totals.get(name)
            inserted = part.inserted + (earlier.inserted if earlier else 0)
            totals[name] = replace(part, inserted=inserted)
    return totals


def total(deltas: Sequence[Delta]) -> Extract:
    """Return the extract of the last payload, with the rows and bytes of all payloads."""
    rows = {name: table.inserted for name, table in counts(deltas).items()}
    size = sum(delta.extract.size for delta in deltas)
    return replace(deltas[-1].extract, rows=rows, size=size)


def remove(deltas: Sequence[Delta]) -> None:
    """Remove the payloads of an update that is not sent."""
    for delta in deltas:
        delta.extract.path.unlink()
