"""A table that changes: its published version and its desired version."""

from collections.abc import Iterable
from dataclasses import dataclass

from tableau_pipeline.core.checkpoint import Cutoff
from tableau_pipeline.core.declaration import Table
from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Snapshot
from tableau_pipeline.extracts.desired import kept, table_source
from tableau_pipeline.extracts.updates.affected_rows import KeyMatch, KeyTable, Kind
from tableau_pipeline.hyper.parquet.rows import rows
from tableau_pipeline.hyper.tables import Column, TableSource
from tableau_pipeline.hyper.types.spark_types import hyper_type


class NotProvedError(Exception):
    """No delta can be proved to be sufficient; the reason is a phrase."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The published or desired content of a table, with the snapshot that holds its rows."""

    snapshot: Snapshot
    content: Fingerprint
    cutoff: Cutoff | None

    def rows(self, files: Iterable[DataFile] | None = None) -> str:
        """Return its rows with their hashes, as SQL; those of some files, or all."""
        return rows(table_source("", self.snapshot, self.cutoff, hashed=True, files=files))


@dataclass(frozen=True, slots=True)
class Change:
    """One table of an update: its published version and its desired version.

    Versions share the files of partitions that were not written again between them, if both read
    them alike. Their rows need not be compared, and mostly need not be read.

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

    @property
    def shared(self) -> tuple[DataFile, ...]:
        """The files of both versions, from which no row comes back."""
        if not self._is_cut_as_late:
            return ()
        published = {*self.published.snapshot.files}
        return tuple(file for file in self.new.snapshot.files if file in published)

    def unshared(self, version: TableVersion) -> tuple[DataFile, ...]:
        """Return the other files of a version."""
        shared = {*self.shared}
        return tuple(file for file in version.snapshot.files if file not in shared)

    def source(self, files: Iterable[DataFile]) -> TableSource:
        """Return the desired rows of some files of the new version."""
        return table_source(self.table.name, self.new.snapshot, self.new.cutoff, files=files)

    def came(self) -> str:
        """Return the rows of files not shared that the new version has, as SQL."""
        return self.new.rows(self.unshared(self.new))

    def gone(self) -> str:
        """Return the published rows of files not shared, and expired ones of the others, as SQL."""
        old, cutoff = self.published, self.new.cutoff
        unshared = old.rows(self.unshared(old))
        if cutoff in (None, old.cutoff):
            return unshared
        expired = (
            f"SELECT * FROM {old.rows(self.shared)} old WHERE NOT {kept(self.columns, cutoff)}"  # noqa: S608
        )
        return f"(SELECT * FROM {unshared} old UNION ALL {expired})"  # noqa: S608

    def surviving(self) -> str:
        """Return the published rows that the new cutoff keeps, of files not shared, as SQL."""
        old = self.published
        published = old.rows(self.unshared(old))
        # Expired rows are deleted by the cutoff; here they would count as changed as well.
        if self.new.cutoff in (None, old.cutoff):
            return published
        return f"(SELECT * FROM {published} old WHERE {kept(self.columns, self.new.cutoff)})"  # noqa: S608

    @property
    def _is_cut_as_late(self) -> bool:
        """Whether the new cutoff drops every row of a file that the published one drops."""
        old, new = self.published.cutoff, self.new.cutoff
        if old is None or old == new:
            return True
        # As texts, dates and time stamps are in the order of time.
        return new is not None and new.column == old.column and new.value >= old.value


def key_table(change: Change, kind: Kind, *matches: KeyMatch) -> KeyTable:
    """Return a key table that identifies affected rows of the changed table."""
    return KeyTable(kind=kind, name=change.table.name, matches=matches)
