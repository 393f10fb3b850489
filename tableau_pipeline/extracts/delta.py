"""A delta: the payload and the actions of an update, proved to be sufficient."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import get_args

from tableauhyperapi import Connection, HyperProcess, TableName, escape_name

from tableau_pipeline.actions.batch import Action, Batch, Insert, Replace
from tableau_pipeline.core.declaration import Diff, Feed, Policy
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.extracts.affected import (
    Affected,
    Change,
    KeyMatch,
    KeyTable,
    Kind,
    NotProvedError,
    TableVersion,
    affected,
    fill,
    find_affected,
    in_payload,
)
from tableau_pipeline.extracts.desired import Models, fingerprint, row_count
from tableau_pipeline.hyper.build import Extract, create_table, new_file
from tableau_pipeline.hyper.parquet import names
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.types import file_version

# Prove that what a delta leaves alone is published already.


def prove(connection: Connection, change: Change, found: Affected) -> tuple[int, int, int]:
    """Check that the unaffected rows are the same in the published and the desired content.

    Returns:
        how many affected rows are published, how many are desired, and how many of the desired ones
        are in shared files.

    Raises:
        NotProvedError: they are not.
    """
    new, old = change.new, change.published
    here = affected(found.keys, "source")
    # If all columns were compared, numbers prove it: where each side leaves as many rows alone as
    # there are equal pairs, every such row is in a pair, for a key identifies it.
    measure = fingerprint if found.equal is None else row_count

    def of_shared(version: TableVersion) -> Fingerprint:
        # This reads the columns that the key tables name, and the hash if it is stored.
        measure = fingerprint if version.content.is_additive else row_count
        return measure(connection, f"{version.rows(change.shared)} source WHERE {here}")

    def divided(version: TableVersion, shared: Fingerprint) -> tuple[int, Fingerprint]:
        """Return the number of affected rows, and the fingerprint of the others."""
        rows = f"{version.rows(change.unshared(version))} source"
        affected_here = measure(connection, f"{rows} WHERE {here}")
        if version.content.is_additive:
            left = version.content - shared
        else:
            # Shared files hold the same rows, so the others prove as much as all.
            left = measure(connection, rows)
        return affected_here.rows + shared.rows, left - affected_here

    shared = of_shared(new)
    inserted, left = divided(new, shared)
    deleted, published = divided(old, shared if new.cutoff == old.cutoff else of_shared(old))
    if published != left:
        raise NotProvedError(
            "rows changed beyond those that its refresh policy affects: "
            + (
                f"the {left.rows:,} rows that it leaves alone are not those that are published"
                if published.rows == left.rows
                else f"{left.rows:,} rows are left alone where {published.rows:,} are published"
            )
        )
    if found.equal not in (None, left.rows):
        raise NotProvedError(
            "rows changed beyond those that its refresh policy affects: of the "
            f"{left.rows:,} rows that it leaves alone, {found.equal:,} equal published ones"
        )
    return deleted, inserted, shared.rows


# The schema of the payload with the rows to insert.
ROWS = "rows"


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The row counts of an update of one table; `whole` is why the whole table is sent."""

    deleted: int
    inserted: int
    whole: str | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """The measured size of a delta.

    Attributes:
        size: bytes of its payload; `limit` is the largest allowed payload in bytes.
        pieces: the number of updates it was split into; 0 if it was not split, or cannot be.
    """

    counts: Mapping[str, RowCounts]
    size: int
    limit: int
    pieces: int


@dataclass(frozen=True, slots=True)
class TableDelta:
    """The part of a delta for one table: its counts and its key tables.

    Attributes:
        is_identified: the key of a `diff` identifies every new row if it identified the old
            ones.
    """

    change: Change
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
        # The deletes come first, because the keys match the new rows as well.
        deletes: list[Action] = [keys.delete(self.target) for keys in self.keys]
        insert = [Insert(target=self.target, source=rows)] if self.counts.inserted else []
        return [*deletes, *insert]


@dataclass(frozen=True, slots=True)
class Delta:
    """An update that can be sent. The rows of its extract are the inserted ones."""

    extract: Extract
    tables: Sequence[TableDelta]

    @classmethod
    def of(cls, path: Path, tables: Sequence[TableDelta], *, version: int) -> "Delta":
        """Return the delta whose payload was written to `path`."""
        rows = {each.change.table.name: each.counts.inserted for each in tables}
        return cls(Extract(path, rows, path.stat().st_size, version), tables)

    @property
    def counts(self) -> Mapping[str, RowCounts]:
        """The row counts by table."""
        return {each.change.table.name: each.counts for each in self.tables}

    @property
    def batch(self) -> Batch:
        """All actions in one batch."""
        return Batch([action for each in self.tables for action in each.actions])


def build_delta(
    hyper: Hyperd,
    path: Path,
    *,
    changes: Sequence[Change],
    targets: Mapping[str, TableName],
    models: Models,
) -> Delta:
    """Write the payload of the update from the published to the desired content.

    For each table, the affected rows are deleted and their current version is inserted.
    Fingerprints prove that this is sufficient: the rows that are not affected must have the same
    fingerprint on both sides. A table for which the proof fails is sent whole.

    Args:
        changes: the tables that change.
        targets: for each declared table, its name in the published file.
    """
    version = file_version(column for change in changes for column in change.columns)
    with new_file(hyper, path, version=version) as connection:
        tables = [
            _Payload(connection, change, targets[change.table.name], models, hyper.memory).table()
            for change in changes
        ]
    return Delta.of(path, tables, version=version)


def insert_rows(
    connection: Connection, change: Change, *relations: str, where: str = "TRUE"
) -> int:
    """Create the table of a payload with the rows to insert, from relations named `source`."""
    table = in_payload(ROWS, change.table.name)
    create_table(connection, table, change.columns)
    columns = names([column.name for column in change.columns])
    return sum(
        connection.execute_command(
            f"INSERT INTO {table} SELECT {columns} FROM {relation} source WHERE {where}"  # noqa: S608
        )
        or 0
        for relation in relations
    )


@dataclass(frozen=True, slots=True)
class _Payload:
    """Writes the part of the payload for one table."""

    connection: Connection
    change: Change
    target: TableName
    models: Models
    memory: int

    def table(self) -> TableDelta:
        """Return the table's delta by its policy; the whole table if no smaller delta is proved."""
        if self.change.whole:
            return self._whole(self.change.whole)
        reasons = []
        for policy in _policies(self.change.table.policy):
            try:
                found = find_affected(
                    self.connection, self.change, policy, self.models, memory=self.memory
                )
                deleted, inserted, shared = prove(self.connection, self.change, found)
            except NotProvedError as error:
                reasons.append(str(error))
                self._drop()
            else:
                counts = RowCounts(deleted, inserted)
                if inserted:
                    self._insert_affected(found.keys, with_shared=shared > 0)
                return TableDelta(
                    self.change,
                    self.target,
                    counts,
                    found.keys,
                    is_identified=self._is_identified(counts),
                )
        return self._whole("; ".join(reasons))

    def _whole(self, reason: str) -> TableDelta:
        """Replace all published rows with all rows of the table."""
        inserted = insert_rows(self.connection, self.change, self.change.new.rows())
        counts = RowCounts(self.change.published_rows, inserted, whole=reason)
        return TableDelta(self.change, self.target, counts)

    def _is_identified(self, counts: RowCounts) -> bool:
        """Whether the key of a `diff` identifies every new row if it identified the old ones.

        The unaffected rows have not changed, and their keys differ from those of the affected rows.
        Rows with a NULL key are never affected, so a new one makes the proof fail.
        """
        policy = self.change.table.policy
        if not isinstance(policy, Diff):
            return False
        if not counts.inserted:
            return True
        table = in_payload(ROWS, self.change.table.name)
        keys = f"SELECT DISTINCT {names(policy.key)} FROM {table}"  # noqa: S608
        found = self.connection.execute_scalar_query(f"SELECT COUNT(*) FROM ({keys}) keys")  # noqa: S608
        return found == counts.inserted

    def _insert_affected(self, keys: Sequence[KeyTable], *, with_shared: bool) -> None:
        new = self.change.new
        # All columns of a file are read, so shared files are left out if they have no such row.
        relations = [new.rows(self.change.unshared(new))]
        relations += [new.rows(self.change.shared)] if with_shared else []
        insert_rows(self.connection, self.change, *relations, where=affected(keys, "source"))

    def _drop(self) -> None:
        """Remove from the payload what an attempt without a proof has left."""
        for kind in get_args(Kind):
            table = in_payload(kind, self.change.table.name)
            self.connection.execute_command(f"DROP TABLE IF EXISTS {table}")


def _policies(policy: Policy) -> list[Policy]:
    """Try a feed first, then a comparison of all rows: a feed may miss a key."""
    match policy:
        case Diff(key, Feed()):
            return [policy, Diff(key)]
        case _:
            return [policy]


# Split a delta that is too large for one payload into consecutive updates.
#
# Each part deletes and inserts the affected rows of its own keys, windows or range of the cursor.
# Between two parts, every row is either in its old or in its new version. All parts are cut from
# the one payload that was built, so the versions are compared only once.


# Several payloads are together larger than one, as every file has some overhead.
_ROOM = 1.3
_WHOLE = "whole"
_RANK = escape_name("_rank")


def split_delta(hyper: HyperProcess, delta: Delta, limit: int) -> list[Delta]:
    """Split an update into several, each with a payload of at most `limit` bytes.

    The first part has the tables that are sent whole. Returns [] if no split is fine enough.
    """
    if limit <= 0:
        return []
    number = ceil(delta.extract.size / limit * _ROOM)
    # Rows differ in size: parts with equally many rows may still exceed the limit.
    for of in (number, 2 * number, 4 * number):
        parts: list[Delta] = []
        for index in range(of):
            part = _build(hyper, delta, index, of)
            parts.append(part)
            if part.extract.size > limit:
                break
        else:
            return parts
        for part in parts:
            part.extract.path.unlink()
    return []


def _build(hyper: HyperProcess, delta: Delta, index: int, of: int) -> Delta:
    whole = delta.extract
    path = whole.path.with_name(f"{whole.path.stem}-{index + 1}-of-{of}.hyper")
    with new_file(hyper, path, version=whole.version) as connection:
        connection.catalog.attach_database(whole.path, _WHOLE)
        parts = [_PartOf(connection, table, index, of).table() for table in delta.tables]
        connection.catalog.detach_database(_WHOLE)
    return Delta.of(path, [part for part in parts if part], version=whole.version)


@dataclass(frozen=True, slots=True)
class _PartOf:
    """Writes the part of one table; `index` counts the `of` parts from 0."""

    connection: Connection
    delta: TableDelta
    index: int
    of: int

    def table(self) -> TableDelta | None:
        """Return the table's delta; None if this part has nothing of the table."""
        counts = self.delta.counts
        if counts.whole:
            # A table that is replaced in pieces would lack most of its rows between them.
            if self.index:
                return None
            self._insert()
            return self.delta
        keys = [
            # The key table of an append has only one row, its start, which cannot be dealt out.
            self._stretch(each)
            if [match.operator for match in each.matches] == ["gte"]
            else self._some_rows(each)
            for each in self.delta.keys
        ]
        inserted = self._insert(where=affected(keys, "source")) if counts.inserted else 0
        return replace(self.delta, keys=keys, counts=replace(counts, inserted=inserted))

    def _payload(self, schema: str) -> TableName:
        """A table of the payload that is being split."""
        return TableName(_WHOLE, schema, self.delta.change.table.name)

    def _insert(self, *, where: str = "TRUE") -> int:
        rows = str(self._payload(ROWS))
        return insert_rows(self.connection, self.delta.change, rows, where=where)

    def _some_rows(self, keys: KeyTable) -> KeyTable:
        columns = names(keys.columns)
        typed = [self.delta.change.column(match.column, called=match.by) for match in keys.matches]
        # Dealt out by rank, so that each part gets equally many keys.
        fill(
            self.connection,
            keys,
            typed,
            f"SELECT {columns} FROM (SELECT {columns}, ROW_NUMBER() OVER (ORDER BY {columns}) "  # noqa: S608
            f"AS {_RANK} FROM {self._payload(keys.kind)}) ranked "
            f"WHERE {_RANK} % {self.of} = {self.index}",
        )
        return keys

    def _stretch(self, keys: KeyTable) -> KeyTable:
        """Fill a key table with one range of the cursor; the last range has no end."""
        (match,) = keys.matches
        if not self.delta.counts.inserted:
            # No rows to divide into ranges, and no rows to send.
            return self._some_rows(keys)
        cursor, start = escape_name(match.column), escape_name(match.by)
        # UNION drops repeated starts, as one value of the cursor may fill several tiles. Then some
        # parts get no range, and affect no rows.
        starts = (
            "SELECT start, LEAD(start) OVER (ORDER BY start) AS stop, "  # noqa: S608
            "ROW_NUMBER() OVER (ORDER BY start) - 1 AS rank "
            f"FROM (SELECT {start} AS start FROM {self._payload(keys.kind)} "
            f"UNION SELECT MIN({cursor}) FROM (SELECT {cursor}, NTILE({self.of}) "
            f"OVER (ORDER BY {cursor}) AS {_RANK} FROM {self._payload(ROWS)}) tiled "
            f"WHERE {_RANK} > 1 GROUP BY {_RANK}) starts"
        )
        this = f"FROM ({starts}) stretches WHERE rank = {self.index}"
        open_end = self.connection.execute_scalar_query(f"SELECT COUNT(*) {this} AND stop IS NULL")
        stretch = keys
        if not open_end:
            stretch = replace(keys, matches=(match, KeyMatch(match.column, "lt", "stop")))
        columns = [self.delta.change.column(match.column, called=name) for name in stretch.columns]
        wanted = ", ".join(
            f"{'start' if name == match.by else 'stop'} AS {escape_name(name)}"
            for name in stretch.columns
        )
        fill(self.connection, stretch, columns, f"SELECT {wanted} {this}")
        return stretch


def counts(deltas: Sequence[Delta]) -> dict[str, RowCounts]:
    """The row counts of all parts; each part already reports the deletes of all of them."""
    found: dict[str, RowCounts] = {}
    for delta in deltas:
        for name, each in delta.counts.items():
            before = found.get(name)
            inserted = each.inserted + (before.inserted if before else 0)
            found[name] = replace(each, inserted=inserted)
    return found


def total(deltas: Sequence[Delta]) -> Extract:
    """The extract of the last payload, with the rows and bytes of all payloads."""
    rows = {name: each.inserted for name, each in counts(deltas).items()}
    size = sum(delta.extract.size for delta in deltas)
    return replace(deltas[-1].extract, rows=rows, size=size)
