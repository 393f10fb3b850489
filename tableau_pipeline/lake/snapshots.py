"""The versions of models of which some are tables of a lake."""

from collections.abc import Mapping
from dataclasses import dataclass

from tableau_pipeline.core.declaration import Declaration, LakeTable
from tableau_pipeline.core.snapshot import Snapshot, Snapshots
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.lake.delta_tables import read_delta
from tableau_pipeline.lake.iceberg_tables import read_iceberg
from tableau_pipeline.objects.local_copies import LocalCopies


@dataclass(frozen=True, slots=True)
class LakeSnapshots:
    """Implements `core.snapshot.Snapshots`.

    Attributes:
        snapshots: the versions of all other models.
        tables: the tables of lakes, by asset key.
        copies: local copies of files in object stores.
    """

    snapshots: Snapshots
    tables: Mapping[str, LakeTable]
    copies: LocalCopies

    def newest(self, asset_key: str) -> Snapshot | None:
        """Return the newest version of a model; None if it has none.

        Raises:
            RefusedError: the table of the lake cannot be read exactly.
        """
        if table := self.tables.get(asset_key):
            return self._read(table, asset_key, number=None)
        return self.snapshots.newest(asset_key)

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version of a model; None if it was removed, or can no longer be read."""
        if table := self.tables.get(asset_key):
            try:
                return self._read(table, asset_key, number=number)
            except RefusedError:
                return None
        return self.snapshots.version(asset_key, number)

    def _read(self, table: LakeTable, asset_key: str, *, number: int | None) -> Snapshot | None:
        match table:
            case LakeTable("delta", str(path)):
                return read_delta(path, asset_key=asset_key, number=number, copies=self.copies)
            case LakeTable(_, location):
                return read_iceberg(
                    location, asset_key=asset_key, number=number, copies=self.copies
                )


def with_lakes(snapshots: Snapshots, declaration: Declaration, copies: LocalCopies) -> Snapshots:
    """Return the versions of all models of a declaration, tables of lakes included."""
    tables = {table.model: table.source for table in declaration.tables if table.source}
    return LakeSnapshots(snapshots, tables, copies) if tables else snapshots
