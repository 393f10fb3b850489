"""A table that changes: what is published now, and what is to be."""

from dataclasses import dataclass

from tableau_pipeline.core.checkpoint import Cutoff, TableContent
from tableau_pipeline.core.declaration import Table
from tableau_pipeline.core.snapshot import Fingerprint, Snapshot
from tableau_pipeline.extracts.affected_rows import KeyMatch, KeyTable, Kind
from tableau_pipeline.extracts.desired import kept, source
from tableau_pipeline.hyper.rows import rows
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.hyper.types.spark_types import hyper_type


class NotProvedError(Exception):
    """No delta can be proved to be enough; the reason is a phrase."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """What a table holds, or is to hold, and the snapshot that has its rows."""

    snapshot: Snapshot
    content: Fingerprint
    cutoff: Cutoff | None

    @classmethod
    def of(cls, table: TableContent, snapshot: Snapshot) -> "TableVersion":
        """The content of a table by its snapshot."""
        return cls(snapshot=snapshot, content=table.content, cutoff=table.cutoff)

    def rows(self) -> str:
        """Its rows with their hashes, as SQL."""
        return rows(source("", self.snapshot, self.cutoff, hashed=True))


@dataclass(frozen=True, slots=True)
class Change:
    """One table of an update: what is published, and what is to be.

    Attributes:
        old: None if the published rows are not at hand, so that the table is shipped whole.
        published_rows: how many there are.
        whole: why the table is shipped whole; None if less may do.
    """

    table: Table
    columns: tuple[Column, ...]
    new: TableVersion
    old: TableVersion | None
    published_rows: int
    whole: str | None = None

    def column(self, name: str, *, called: str | None = None) -> Column:
        """A column of the table, perhaps by another name."""
        found = next(column for column in self.columns if column.name == name)
        return Column(called or name, found.type)

    def type(self, name: str) -> str:
        """A column's type in Hyper."""
        return hyper_type(self.column(name), table=self.table.name)

    @property
    def published(self) -> TableVersion:
        """What is published.

        Raises:
            NotProvedError: it is not at hand.
        """
        if self.old is None:
            raise NotProvedError("the snapshot that is published is gone")
        return self.old

    def surviving(self) -> str:
        """The published rows that the new cutoff leaves, as SQL."""
        old = self.published
        if self.new.cutoff in (None, old.cutoff):
            return old.rows()
        return f"(SELECT * FROM {old.rows()} old WHERE {kept(self.columns, self.new.cutoff)})"  # noqa: S608


def key_table(change: Change, kind: Kind, *matches: KeyMatch) -> KeyTable:
    """A table of the payload that says which rows of a table are affected."""
    return KeyTable(kind=kind, name=change.table.name, matches=matches)
