"""A delta: the payload and the actions of an update, proved to be sufficient."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from tableauhyperapi import Connection, TableName

from tableau_pipeline.actions.batch import Action, Batch, Insert, Replace
from tableau_pipeline.core.policies import Diff, Feed, Policy
from tableau_pipeline.extracts.desired import Models
from tableau_pipeline.extracts.updates.affected_rows import KeyTable, Kind, affected, in_payload
from tableau_pipeline.extracts.updates.change import Change, NotProvedError
from tableau_pipeline.extracts.updates.changed_rows import find_affected
from tableau_pipeline.extracts.updates.proof import prove
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.hyper.new_file import create_table, new_file
from tableau_pipeline.hyper.parquet.rows import names
from tableau_pipeline.hyper.process import Hyperd
from tableau_pipeline.hyper.types.spark_types import file_version

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
