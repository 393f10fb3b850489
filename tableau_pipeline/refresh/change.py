"""A table that changes: what may be published now, and what shall be."""

from collections.abc import Sequence
from dataclasses import dataclass

from tableau_pipeline.core.checkpoint import Cutoff, TableState
from tableau_pipeline.core.declaration import Table
from tableau_pipeline.core.snapshot import Fingerprint, Snapshot
from tableau_pipeline.hyper.rows import rows
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.hyper.types import hyper_type
from tableau_pipeline.refresh.contents import kept, source
from tableau_pipeline.refresh.touched import Match, Part, PartKind


class NotProvedError(Exception):
    """No increment can be proved to be enough; the reason is a phrase."""


@dataclass(frozen=True, slots=True)
class Side:
    """What a table holds, or shall hold."""

    snapshots: Sequence[Snapshot]
    content: Fingerprint
    cutoff: Cutoff | None

    @classmethod
    def of(cls, state: TableState, snapshots: Sequence[Snapshot]) -> "Side":
        """The content of a table by its snapshots."""
        return cls(snapshots=snapshots, content=state.content, cutoff=state.cutoff)

    def rows(self) -> str:
        """Its rows with their hashes, as SQL."""
        return rows(source("", self.snapshots, self.cutoff, hashed=True))


@dataclass(frozen=True, slots=True)
class Change:
    """One table of an update: all that may be published now, and what shall be."""

    table: Table
    columns: tuple[Column, ...]
    new: Side
    olds: Sequence[Side]

    def column(self, name: str, *, called: str | None = None) -> Column:
        """A column of the table, perhaps by another name."""
        found = next(column for column in self.columns if column.name == name)
        return Column(called or name, found.type)

    def type(self, name: str) -> str:
        """A column's type in Hyper."""
        return hyper_type(self.column(name), table=self.table.name)

    def surviving(self, old: Side) -> str:
        """The rows of an old content that the new cutoff leaves."""
        if self.new.cutoff in (None, old.cutoff):
            return old.rows()
        return f"(SELECT * FROM {old.rows()} old WHERE {kept(self.columns, self.new.cutoff)})"  # noqa: S608


def part_of(change: Change, kind: PartKind, *matches: Match) -> Part:
    """A part of a table's touched set."""
    return Part(kind=kind, name=change.table.name, matches=matches)
