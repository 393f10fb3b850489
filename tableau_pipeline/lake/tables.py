"""Read lake tables (Delta, Iceberg) as versions of models, with the library for each format."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.lake_table import InCatalog, LakeFormat, LakeTable
from tableau_pipeline.core.snapshot import Snapshot, Snapshots
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.outcome import Code

_LIBRARIES = {"delta": "deltalake", "iceberg": "pyiceberg"}


def current_version(table: LakeTable) -> str:
    """Return a text that changes with each version of a table, and if the table is replaced.

    Raises:
        RefusedError: the table does not exist or cannot be read.
        RefreshError: the catalog or the object store failed, or did not answer.
    """
    return _reader(table.format, table.location).newest(table.location)


def _reader(format_: LakeFormat, location: str | InCatalog) -> Any:
    """Return the module that reads a format; an extra of this package installs its library."""
    library = _LIBRARIES[format_]
    try:
        return import_module(f"tableau_pipeline.lake.{format_}")
    except ModuleNotFoundError as error:
        raise RefusedError(
            f"The {format_.title()} table {location} needs {library}: pip install "
            f"'tableau_pipeline[{format_}]'",
            code=Code.NOT_INSTALLED,
        ) from error


@dataclass(frozen=True, slots=True)
class LakeSnapshots:
    """Implements `core.snapshot.Snapshots` for tables of lakes and for other models.

    Attributes:
        snapshots: the versions of all other models.
        tables: the tables of lakes; the keys are asset keys.
        copies: the local copies of files in object stores.
    """

    snapshots: Snapshots
    tables: Mapping[str, LakeTable]
    copies: LocalCopies

    def newest(self, asset_key: str) -> Snapshot | None:
        """Return the newest version of a model; None if the model has no version.

        Raises:
            RefusedError: the table of the lake cannot be read exactly.
        """
        if table := self.tables.get(asset_key):
            return self._read(table, asset_key, number=None)
        return self.snapshots.newest(asset_key)

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version of a model; None if the version was removed or is no longer readable."""
        if table := self.tables.get(asset_key):
            try:
                return self._read(table, asset_key, number=number)
            except RefusedError:
                return None
        return self.snapshots.version(asset_key, number)

    def _read(self, table: LakeTable, asset_key: str, *, number: int | None) -> Snapshot | None:
        read = _reader(table.format, table.location).read
        return read(table.location, asset_key=asset_key, number=number, copies=self.copies)


def with_lakes(snapshots: Snapshots, declaration: Declaration, copies: LocalCopies) -> Snapshots:
    """Return the versions of all models of a declaration, including tables of lakes."""
    tables = {table.model: table.source for table in declaration.tables if table.source}
    return LakeSnapshots(snapshots, tables, copies) if tables else snapshots
