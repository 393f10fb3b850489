"""An update of the published tables: its payload and its actions, proved to be enough."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from tableauhyperapi import Connection, HyperProcess, TableName

from tableau_pipeline.actions.batch import Action, Batch, Insert, Replace
from tableau_pipeline.core.policies import Diff, Feed, Policy
from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.hyper.build import Extract
from tableau_pipeline.hyper.new_file import create_table, new_file
from tableau_pipeline.hyper.rows import names
from tableau_pipeline.hyper.types import file_version
from tableau_pipeline.refresh.change import Change, NotProvedError
from tableau_pipeline.refresh.contents import Models, fingerprint
from tableau_pipeline.refresh.deltas import find_parts
from tableau_pipeline.refresh.slices import Slice, slice_of
from tableau_pipeline.refresh.touched import Part, PartKind, in_payload, touched

# The schema of the payload with the rows to insert.
_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Shipped:
    """What an update does to a table, in rows; `whole` says why the table is shipped whole."""

    deleted: int
    inserted: int
    whole: str | None = None


@dataclass(frozen=True, slots=True)
class Increment:
    """An update that can be sent; its payload counts the rows that it inserts.

    Attributes:
        identified: tables whose key identifies every row if it did so before.
    """

    extract: Extract
    batch: Batch
    tables: Mapping[str, Shipped]
    identified: frozenset[str] = frozenset()


def build_increment(
    hyper: HyperProcess,
    path: Path,
    *,
    changes: Sequence[tuple[Change, str | None]],
    targets: Mapping[str, TableName],
    models: Models,
    piece: Slice = Slice(0, 1),  # noqa: B008 - frozen
) -> Increment:
    """Write the payload of an update that leads from every base to the new content.

    Of each table, the touched rows are deleted and inserted as they are now. That this is enough
    is proved by fingerprints, which add up: what is not touched must be the same on both sides.
    A table for which that fails, or which comes with a reason, is shipped whole.

    Args:
        changes: the tables that change, each with the reason to ship it whole, if there is one.
        targets: the published tables by the names of the declared ones.
        piece: which slice of the update is built. The first has the tables that are shipped whole.
    """
    version = file_version(column for change, _ in changes for column in change.columns)
    actions: list[Action] = []
    shipped = {}
    identified = set()
    with new_file(hyper, path, version=version) as connection:
        for change, reason in changes:
            name = change.table.name
            payload = _Payload(connection, change, targets[name], models, piece)
            done = payload.whole(reason) if reason else payload.touched()
            shipped[name], more = done
            actions += more
            if payload.identified(done[0]):
                identified.add(name)
    extract = Extract(
        path=path,
        rows={name: each.inserted for name, each in shipped.items()},
        size=path.stat().st_size,
        version=version,
    )
    return Increment(
        extract=extract,
        batch=Batch(actions),
        tables=shipped,
        identified=frozenset(identified),
    )


@dataclass(frozen=True, slots=True)
class _Payload:
    """One table's share of the payload."""

    connection: Connection
    change: Change
    target: TableName
    models: Models
    piece: Slice

    def touched(self) -> tuple[Shipped, list[Action]]:
        """By the table's policy; whole, if nothing less is proved to be enough."""
        reasons = []
        for policy in _policies(self.change.table.policy):
            parts: list[Part] = []
            try:
                parts = find_parts(self.connection, self.change, policy, self.models)
                shipped = _prove(self.connection, self.change, parts)
            except NotProvedError as error:
                reasons.append(str(error))
                self._drop()
            else:
                return self._delete_and_insert(parts, shipped)
        return self.whole("; ".join(reasons))

    def whole(self, reason: str) -> tuple[Shipped, list[Action]]:
        """All rows of the table, in the place of all that are published."""
        if self.piece.number:
            return Shipped(deleted=0, inserted=0, whole=reason), []
        inserted = self._insert(where="TRUE")
        deleted = max((old.content.rows for old in self.change.olds), default=0)
        action = Replace(target=self.target, source=self._rows)
        return Shipped(deleted=deleted, inserted=inserted, whole=reason), [action]

    def identified(self, shipped: Shipped) -> bool:
        """Whether the key of a `diff` identifies every new row if it did so in every base.

        The rows that are not touched are as they were, and have other keys than the touched ones.
        Rows without a key are never touched, so that a new one is a difference without a proof.
        """
        policy = self.change.table.policy
        if shipped.whole or not isinstance(policy, Diff):
            return False
        if not shipped.inserted:
            return True
        table = in_payload(_ROWS, self.change.table.name)
        keys = f"SELECT DISTINCT {names(policy.key)} FROM {table}"  # noqa: S608
        found = self.connection.execute_scalar_query(f"SELECT COUNT(*) FROM ({keys}) keys")  # noqa: S608
        return found == shipped.inserted

    def _delete_and_insert(
        self, parts: Sequence[Part], shipped: Shipped
    ) -> tuple[Shipped, list[Action]]:
        if self.piece.of > 1:
            parts = slice_of(self.connection, self.change, parts, self.piece)
        deletes = [part.delete(self.target) for part in parts]
        if not shipped.inserted:
            return shipped, [*deletes]
        inserted = self._insert(where=touched(parts, "source"))
        insert = Insert(target=self.target, source=self._rows)
        return replace(shipped, inserted=inserted), [*deletes, insert]

    @property
    def _rows(self) -> TableName:
        return TableName(_ROWS, self.change.table.name)

    def _insert(self, *, where: str) -> int:
        table = in_payload(_ROWS, self.change.table.name)
        create_table(self.connection, table, self.change.columns)
        columns = names([column.name for column in self.change.columns])
        inserted = self.connection.execute_command(
            f"INSERT INTO {table} SELECT {columns} FROM {self.change.new.rows()} source "  # noqa: S608
            f"WHERE {where}"
        )
        return inserted or 0

    def _drop(self) -> None:
        """What an attempt left that was not proved must not travel."""
        for kind in get_args(PartKind):
            table = in_payload(kind, self.change.table.name)
            self.connection.execute_command(f"DROP TABLE IF EXISTS {table}")


def _policies(policy: Policy) -> list[Policy]:
    """A feed may forget to name a key: comparing the rows does not."""
    match policy:
        case Diff(key, Feed()):
            return [policy, Diff(key)]
        case _:
            return [policy]


def _prove(connection: Connection, change: Change, parts: Sequence[Part]) -> Shipped:
    """What is not touched is the same in every base and in the new content.

    Raises:
        NotProvedError: it is not.
    """
    here = touched(parts, "source")

    def of_touched(relation: str) -> Fingerprint:
        return fingerprint(connection, f"{relation} source WHERE {here}")

    inserted = of_touched(change.new.rows())
    untouched = change.new.content - inserted
    deleted = [of_touched(old.rows()) for old in change.olds]
    for old, out in zip(change.olds, deleted, strict=True):
        if old.content - out != untouched:
            left = (old.content - out).rows
            raise NotProvedError(
                "rows changed beyond those that its refresh policy touches: "
                + (
                    f"the {left:,} rows that it leaves alone are not those that are published"
                    if left == untouched.rows
                    else f"{untouched.rows:,} rows are left alone where {left:,} are published"
                )
            )
    return Shipped(deleted=max(each.rows for each in deleted), inserted=inserted.rows)
