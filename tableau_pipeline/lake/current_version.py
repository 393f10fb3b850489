"""The newest version of a table of a lake, without its files."""

from tableau_pipeline.core.declaration import InCatalog, LakeTable
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.lake.delta_tables import open_delta
from tableau_pipeline.lake.iceberg_metadata import open_iceberg


def current_version(table: LakeTable) -> str:
    """Return a text that differs for every version of a table, and for another table in its place.

    Raises:
        RefusedError: the table does not exist or cannot be read.
    """
    match table:
        case LakeTable("delta", str(path)):
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
