"""A table that changes: its published version and its desired version."""

from dataclasses import dataclass

from tableau_pipeline.core.checkpoint import Cutoff
from tableau_pipeline.core.declaration import Table
from tableau_pipeline.core.snapshot import Fingerprint, Snapshot
from tableau_pipeline.extracts.affected_rows import KeyMatch, KeyTable, Kind
from tableau_pipeline.extracts.desired import kept, source
from tableau_pipeline.hyper.rows import rows
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline.hyper.types.spark_types import hyper_type


class NotProvedError(Exception):
    """No delta can be proved to be sufficient; the reason is a phrase."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The published or desired content of a table, with the snapshot that holds its rows."""

    snapshot: Snapshot
    content: Fingerprint
    cutoff: Cutoff | None

    def rows(self) -> str:
        """Return its rows with their hashes, as SQL."""
        return rows(source("", self.snapshot, self.cutoff, hashed=True))


@dataclass(frozen=True, slots=True)
class Change:
    """One table of an update: its published version and its desired version.

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

    def surviving(self) -> str:
        """Return the published rows that the new cutoff keeps, as SQL."""
        old = self.published
        # Expired rows are deleted by the cutoff; here they would count as changed as well.
        if self.new.cutoff in (None, old.cutoff):
            return old.rows()
        return f"(SELECT * FROM {old.rows()} old WHERE {kept(self.columns, self.new.cutoff)})"  # noqa: S608


def key_table(change: Change, kind: Kind, *matches: KeyMatch) -> KeyTable:
    """Return a key table that identifies affected rows of the changed table."""
    return KeyTable(kind=kind, name=change.table.name, matches=matches)
