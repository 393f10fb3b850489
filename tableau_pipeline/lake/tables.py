"""The newest version of a table of a lake, without its files."""

from collections.abc import Mapping
from dataclasses import dataclass

from tableau_pipeline.core.declaration import Declaration, InCatalog, LakeTable
from tableau_pipeline.core.snapshot import Snapshot, Snapshots
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.lake.delta import open_delta, read_delta
from tableau_pipeline.lake.iceberg import open_iceberg, read_iceberg
from tableau_pipeline.objects.local import LocalCopies


def current_version(table: LakeTable) -> str:
    """Return a text that differs for every version of a table, and for another table in its place.

    Raises:
        RefusedError: the table does not exist or cannot be read.
    """
    match table:
        case LakeTable(format="delta", location=str(path)):
            return delta_version(path)
        case _:
            return _iceberg_version(table.location)


def delta_version(path: str) -> str:
    """Return the newest version of a Delta table, as "<id of the table>@<number>".

    Raises:
        RefusedError: the table does not exist or cannot be read.
    """
    table = open_delta(path)
    if table is None:
        raise RefusedError(f"The Delta table {path} has no version")
    return f"{table.metadata().id}@{table.version()}"


def iceberg_version(table: str, *, catalog: str | None = None) -> str:
    """Return the newest version of an Iceberg table, "<id of the table>@<snapshot>/<schema>".

    Args:
        table: its path or URL; or its name in the catalog, "db.orders".
        catalog: the name by which pyiceberg's configuration knows the catalog.

    Raises:
        RefusedError: the table does not exist or cannot be read.
        RefreshError: the catalog or the object store failed, or did not answer.
    """
    return _iceberg_version(InCatalog(catalog, table) if catalog else table)


def _iceberg_version(location: str | InCatalog) -> str:
    table = open_iceberg(location)
    snapshot = table.current_snapshot()
    number = snapshot.snapshot_id if snapshot else None
    return f"{table.metadata.table_uuid}@{number}/{table.schema().schema_id}"


# The versions of models of which some are tables of a lake.


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
            case LakeTable(format="delta", location=str(path)):
                return read_delta(path, asset_key=asset_key, number=number, copies=self.copies)
            case LakeTable(location=location):
                return read_iceberg(
                    location, asset_key=asset_key, number=number, copies=self.copies
                )


def with_lakes(snapshots: Snapshots, declaration: Declaration, copies: LocalCopies) -> Snapshots:
    """Return the versions of all models of a declaration, tables of lakes included."""
    tables = {table.model: table.source for table in declaration.tables if table.source}
    return LakeSnapshots(snapshots, tables, copies) if tables else snapshots
