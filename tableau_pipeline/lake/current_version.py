"""The newest version of a table of a lake, without its files."""

from tableau_pipeline.core.declaration import LakeTable
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.lake.delta_tables import open_delta
from tableau_pipeline.lake.iceberg_tables import open_iceberg


def current_version(table: LakeTable) -> str:
    """Return a text that differs for every version of a table, and for another table in its place.

    Raises:
        RefusedError: the table does not exist or cannot be read.
    """
    if table.format == "delta":
        return delta_version(table.path)
    return iceberg_version(table.path)


def delta_version(path: str) -> str:
    """Return the newest version of a Delta table, as "<id of the table>@<number>".

    Raises:
        RefusedError: the table does not exist or cannot be read.
    """
    table = open_delta(path)
    if table is None:
        raise RefusedError(f"The Delta table {path} has no version")
    return f"{table.metadata().id}@{table.version()}"


def iceberg_version(path: str) -> str:
    """Return the newest version of an Iceberg table, "<id of the table>@<snapshot>/<schema>".

    Raises:
        RefusedError: the table does not exist or cannot be read.
    """
    table = open_iceberg(path)
    snapshot = table.current_snapshot()
    number = snapshot.snapshot_id if snapshot else None
    return f"{table.metadata.table_uuid}@{number}/{table.schema().schema_id}"
