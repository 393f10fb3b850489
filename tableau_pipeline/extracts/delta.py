"""A delta: the payload and the actions of an update, proved to be enough."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from tableauhyperapi import Connection, HyperProcess, TableName

from tableau_pipeline.actions.batch import Action, Batch, Insert, Replace
from tableau_pipeline.core.policies import Diff, Feed, Policy
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.extracts.affected_rows import KeyTable, Kind, affected, in_payload
from tableau_pipeline.extracts.change import Change, NotProvedError
from tableau_pipeline.extracts.changed_rows import find_affected
from tableau_pipeline.extracts.desired import Models, fingerprint
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.hyper.new_file import create_table, new_file
from tableau_pipeline.hyper.rows import names
from tableau_pipeline.hyper.types.spark_types import file_version

# The schema of the payload with the rows to insert.
ROWS = "rows"


@dataclass(frozen=True, slots=True)
class RowCounts:
    """What an update does to a table, in rows; `whole` says why the table is shipped whole."""

    deleted: int
    inserted: int
    whole: str | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """A delta, measured.

    Attributes:
        size: bytes of its payload, `limit` what a payload may have.
        pieces: into how many updates it was split to stay below; 0 if it was not, or cannot be.
    """

    counts: Mapping[str, RowCounts]
    size: int
    limit: int
    pieces: int


@dataclass(frozen=True, slots=True)
class TableDelta:
    """The share of one table: its counts, and the key tables that say which rows are affected.

    Attributes:
        is_identified: the key of a `diff` identifies every row if it did so before.
    """

    change: Change
    target: TableName
    counts: RowCounts
    keys: Sequence[KeyTable] = ()
    is_identified: bool = False

    @property
    def actions(self) -> list[Action]:
        """What the server is asked to do."""
        rows = TableName(ROWS, self.change.table.name)
        if self.counts.whole:
            return [Replace(target=self.target, source=rows)]
        deletes: list[Action] = [keys.delete(self.target) for keys in self.keys]
        insert = [Insert(target=self.target, source=rows)] if self.counts.inserted else []
        return [*deletes, *insert]


@dataclass(frozen=True, slots=True)
class Delta:
    """An update that can be sent; its payload counts the rows that it inserts."""

    extract: Extract
    tables: Sequence[TableDelta]

    @property
    def counts(self) -> Mapping[str, RowCounts]:
        """What it does, by table."""
        return {each.change.table.name: each.counts for each in self.tables}

    @property
    def batch(self) -> Batch:
        """What the server is asked to do, with all tables in one batch."""
        return Batch([action for each in self.tables for action in each.actions])


def build_delta(
    hyper: HyperProcess,
    path: Path,
    *,
    changes: Sequence[Change],
    targets: Mapping[str, TableName],
    models: Models,
) -> Delta:
    """Write the payload of an update that leads from what is published to the new content.

    Of each table, the affected rows are deleted and inserted as they are now. That this is enough
    is proved by fingerprints, which add up: what is not affected must be the same on both sides.
    A table for which that fails is shipped whole.

    Args:
        changes: the tables that change.
        targets: the published tables by the names of the declared ones.
    """
    version = file_version(column for change in changes for column in change.columns)
    with new_file(hyper, path, version=version) as connection:
        tables = [
            _Payload(connection, change, targets[change.table.name], models).table()
            for change in changes
        ]
    extract = Extract(
        path=path,
        rows={each.change.table.name: each.counts.inserted for each in tables},
        size=path.stat().st_size,
        version=version,
    )
    return Delta(extract=extract, tables=tables)


@dataclass(frozen=True, slots=True)
class _Payload:
    """One table's share of the payload, while it is written."""

    connection: Connection
    change: Change
    target: TableName
    models: Models

    def table(self) -> TableDelta:
        """By the table's policy; whole, if nothing less is proved to be enough."""
        if self.change.whole:
            return self._whole(self.change.whole)
        reasons = []
        for policy in _policies(self.change.table.policy):
            try:
                keys = find_affected(self.connection, self.change, policy, self.models)
                counts = _prove(self.connection, self.change, keys)
            except NotProvedError as error:
                reasons.append(str(error))
                self._drop()
            else:
                if counts.inserted:
                    self._insert(where=affected(keys, "source"))
                return TableDelta(
                    self.change,
                    self.target,
                    counts,
                    keys,
                    is_identified=self._is_identified(counts),
                )
        return self._whole("; ".join(reasons))

    def _whole(self, reason: str) -> TableDelta:
        """All rows of the table, instead of all that are published."""
        inserted = self._insert(where="TRUE")
        counts = RowCounts(self.change.published_rows, inserted, whole=reason)
        return TableDelta(self.change, self.target, counts)

    def _is_identified(self, counts: RowCounts) -> bool:
        """Whether the key of a `diff` identifies every new row if it did so before.

        The rows that are not affected are as they were, and have other keys than the affected
        ones. Rows without a key are never affected, so that a new one is a change without a proof.
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

    def _insert(self, *, where: str) -> int:
        table = in_payload(ROWS, self.change.table.name)
        create_table(self.connection, table, self.change.columns)
        columns = names([column.name for column in self.change.columns])
        inserted = self.connection.execute_command(
            f"INSERT INTO {table} SELECT {columns} FROM {self.change.new.rows()} source "  # noqa: S608
            f"WHERE {where}"
        )
        return inserted or 0

    def _drop(self) -> None:
        """What an attempt left that was not proved must not travel."""
        for kind in get_args(Kind):
            table = in_payload(kind, self.change.table.name)
            self.connection.execute_command(f"DROP TABLE IF EXISTS {table}")


def _policies(policy: Policy) -> list[Policy]:
    """A feed may forget to name a key: comparing the rows does not."""
    match policy:
        case Diff(key, Feed()):
            return [policy, Diff(key)]
        case _:
            return [policy]


def _prove(connection: Connection, change: Change, keys: Sequence[KeyTable]) -> RowCounts:
    """What is not affected is the same in what is published and in the new content.

    Raises:
        NotProvedError: it is not.
    """
    here = affected(keys, "source")

    def of_affected(relation: str) -> Fingerprint:
        return fingerprint(connection, f"{relation} source WHERE {here}")

    inserted = of_affected(change.new.rows())
    deleted = of_affected(change.published.rows())
    left, published = change.new.content - inserted, change.published.content - deleted
    if published != left:
        raise NotProvedError(
            "rows changed beyond those that its refresh policy affects: "
            + (
                f"the {left.rows:,} rows that it leaves alone are not those that are published"
                if published.rows == left.rows
                else f"{left.rows:,} rows are left alone where {published.rows:,} are published"
            )
        )
    return RowCounts(deleted=deleted.rows, inserted=inserted.rows)
