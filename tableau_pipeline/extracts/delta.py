"""A delta: the payload and the actions of an update, proved to be sufficient."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from tableauhyperapi import Connection, TableName

from tableau_pipeline.actions.batch import Action, Batch, Insert, Replace
from tableau_pipeline.core.declaration import Diff, Feed, Policy
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.extracts.affected import (
    KeyTable,
    Kind,
    NotProvedError,
    TableChange,
    TableVersion,
    affected,
    find_affected,
    in_payload,
)
from tableau_pipeline.extracts.desired import Models, fingerprint, row_count
from tableau_pipeline.hyper.build import Extract, create_table, new_file
from tableau_pipeline.hyper.parquet import names
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.types import file_version

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
    """

    counts: Mapping[str, RowCounts]
    size: int
    limit: int


@dataclass(frozen=True, slots=True)
class TableDelta:
    """The part of a delta for one table: its counts and its key tables.

    Attributes:
        is_identified: the key of a `diff` identifies every new row if it identified the old
            ones.
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
    changes: Sequence[TableChange],
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
            _table(connection, change, targets[change.table.name], models, memory=hyper.memory)
            for change in changes
        ]
    return Delta.of(path, tables, version=version)


def _table(
    connection: Connection, change: TableChange, target: TableName, models: Models, *, memory: int
) -> TableDelta:
    """Write the delta of a table by its policy; the whole table if no smaller one is proved."""
    if change.whole:
        policies, reasons = [], [change.whole]
    else:
        policies, reasons = _policies(change.table.policy), []
    for policy in policies:
        try:
            keys, equal = find_affected(connection, change, policy, models, memory=memory)
            deleted, inserted, shared = prove(connection, change, keys, equal=equal)
        except NotProvedError as error:
            reasons.append(str(error))
            # The payload must not keep what an attempt without a proof has left.
            for kind in get_args(Kind):
                connection.execute_command(f"DROP TABLE IF EXISTS {in_payload(kind, change)}")
            continue
        if inserted:
            # All columns of a file are read, so shared files are left out if they have no such row.
            relations = [change.new.select_sql(change.shared)] if shared else []
            _insert(connection, change, change.added_sql(), *relations, where=affected(keys))
        counts = RowCounts(deleted, inserted)
        is_identified = _is_identified(connection, change, inserted)
        return TableDelta(change, target, counts, keys, is_identified=is_identified)
    inserted = _insert(connection, change, change.new.select_sql())
    whole = RowCounts(change.published_rows, inserted, whole="; ".join(reasons))
    return TableDelta(change, target, whole)


def _policies(policy: Policy) -> list[Policy]:
    """Try a feed first, then a comparison of all rows: a feed may miss a key."""
    match policy:
        case Diff(key, Feed()):
            return [policy, Diff(key)]
        case _:
            return [policy]


def prove(
    connection: Connection, change: TableChange, keys: Sequence[KeyTable], *, equal: int | None
) -> tuple[int, int, int]:
    """Check that the unaffected rows are the same in the published and the desired content.

    Args:
        equal: the number of pairs of equal rows, as `find_affected` returns it.

    Returns:
        how many affected rows are published, how many are desired, and how many of the desired ones
        are in shared files.

    Raises:
        NotProvedError: they are not.
    """
    new, old = change.new, change.published
    here = affected(keys)
    # Counts are enough where all columns were compared: a key is in one pair of equal rows at most,
    # so if either version has as many unaffected rows as there are pairs, these are the same rows.
    measure = fingerprint if equal is None else row_count

    def of_shared(version: TableVersion) -> Fingerprint:
        # This reads the columns that the key tables name, and the hash if it is stored.
        measure = fingerprint if version.content.is_additive else row_count
        return measure(connection, f"{version.select_sql(change.shared)} source WHERE {here}")

    def divided(version: TableVersion, shared: Fingerprint) -> tuple[int, Fingerprint]:
        """Return the number of affected rows, and the fingerprint of the others."""
        rows = f"{version.select_sql(change.unshared(version))} source"
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
    if published.rows != left.rows:
        problem = f"{left.rows:,} rows are left alone where {published.rows:,} are published"
    elif published != left:
        problem = f"the {left.rows:,} rows that it leaves alone are not those that are published"
    elif equal not in (None, left.rows):
        problem = f"of the {left.rows:,} rows that it leaves alone, {equal:,} equal published ones"
    else:
        return deleted, inserted, shared.rows
    raise NotProvedError(f"rows changed beyond those that its refresh policy affects: {problem}")


def _insert(
    connection: Connection, change: TableChange, *relations: str, where: str = "TRUE"
) -> int:
    """Create the table of a payload with the rows to insert, from relations named `source`."""
    table, columns = in_payload(ROWS, change), [column.name for column in change.columns]
    create_table(connection, table, {name: change.type(name) for name in columns})
    selects = (
        f"SELECT {names(columns)} FROM {relation} source WHERE {where}"  # noqa: S608
        for relation in relations
    )
    return sum(connection.execute_command(f"INSERT INTO {table} {each}") or 0 for each in selects)


def _is_identified(connection: Connection, change: TableChange, inserted: int) -> bool:
    """Whether the key of a `diff` identifies every new row if it identified the old ones.

    The unaffected rows have not changed, and their keys differ from those of the affected rows.
    Rows with a NULL key are never affected, so a new one makes the proof fail.
    """
    policy = change.table.policy
    if not isinstance(policy, Diff) or not inserted:
        return isinstance(policy, Diff)
    keys = f"SELECT DISTINCT {names(policy.key)} FROM {in_payload(ROWS, change)}"  # noqa: S608
    return connection.execute_scalar_query(f"SELECT COUNT(*) FROM ({keys}) keys") == inserted  # noqa: S608
