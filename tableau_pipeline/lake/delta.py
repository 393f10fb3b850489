"""Read versions of Delta tables: deltalake reads the log, hyperd reads the files."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tableau_pipeline.core.snapshot import DataFile, Snapshot
from tableau_pipeline.errors import LakeError
from tableau_pipeline.hyper.parquet import Layout, StoredColumn
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.lake.files import (
    Footer,
    folder_at,
    footers,
    lake_snapshot,
    name_below_table,
    partition_text,
)
from tableau_pipeline.objects.errors import describe_failure
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.stores import StoreError, is_url

# Types whose names differ: Delta's names are the keys, Spark's names are the values.
_TYPES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_PHYSICAL_NAME = "delta.columnMapping.physicalName"
# Like the stores' own SDKs, accept an endpoint that begins with http://.
_OPTIONS = {"allow_http": "true"}
_READABLE_FEATURES = {
    "columnMapping",
    "deletionVectors",  # if no file has one
    "timestampNtz",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}


def read(path: str, *, asset_key: str, number: int | None, copies: LocalCopies) -> Snapshot | None:
    """Return a version of a Delta table; the newest one if `number` is None.

    Returns:
        The version; None if the log no longer has it.

    Raises:
        RefusedError: there is no table, or the table cannot be read exactly.
    """
    table = _open_table(path, number=number)
    if table is None:
        return None
    _check_features(table, path)
    fields = table.schema().fields
    # Tableau has no nested types, so only their kind is of interest.
    kinds = [str(field.type.type) for field in fields]
    types = [
        f"{kind}<...>" if kind in ("array", "map", "struct") else _TYPES.get(kind, kind)
        for kind in kinds
    ]
    columns = [Column(field.name, type_) for field, type_ in zip(fields, types, strict=True)]
    is_mapped = table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    physical = {
        field.name: str(field.metadata[_PHYSICAL_NAME]) if is_mapped else field.name
        for field in fields
    }
    # Avoid pa.table, which would import pandas and so take longer than reading the log.
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
    # If the table has no partition columns, the column "partition" is missing, or NULL.
    action_fields = {"path", "modification_time", "partition"}.intersection(actions.schema.names)
    added = actions.select(sorted(action_fields)).to_pylist()
    # The log escapes the names of files as in URLs.
    names = [
        name_below_table(unquote(action["path"]), path, table=_title(path)) for action in added
    ]
    folder = folder_at(path, copies)
    file_footers = footers(folder, names, table=_title(path))
    last_change = max((action["modification_time"] for action in added), default=0)
    return lake_snapshot(
        asset_key=asset_key,
        folder=folder,
        number=table.version(),
        created_at=datetime.fromtimestamp(last_change / 1000, UTC),
        columns=columns,
        files=[
            _file(name, footer, columns, physical, action.get("partition") or {})
            for name, footer, action in zip(names, file_footers, added, strict=True)
        ],
        identity=str(table.metadata().id),
    )


def newest(path: str) -> str:
    """Return the newest version of a table, as "<id of the table>@<number>"."""
    table = _open_table(path)
    if table is None:
        raise LakeError(f"{_title(path)} has no version")
    return f"{table.metadata().id}@{table.version()}"


def _open_table(path: str, *, number: int | None = None) -> DeltaTable | None:
    """Open a Delta table at a version; None if the log no longer has the version.

    Raises:
        RefusedError: there is no Delta table, or deltalake cannot read it.
        StoreError: the object store failed, or did not answer.
    """
    options = _OPTIONS if is_url(path, setting="source") else None
    try:
        return DeltaTable(path, version=number, storage_options=options)
    except TableNotFoundError as error:
        raise LakeError(
            f"{_title(path)} does not exist: correct `source`, or create the table"
        ) from error
    except DeltaError as error:
        if number is not None:
            return None
        raise LakeError(f"{_title(path)} cannot be read: {error}") from error
    except OSError as error:
        if is_url(path, setting="source"):
            # Drop the original error: it shows the whole request, which may contain a signature.
            raise StoreError(describe_failure(error, "Reading", path)) from None
        raise LakeError(f"{_title(path)} cannot be read: {error}") from error


def _check_features(table: DeltaTable, path: str) -> None:
    """Refuse a table that has features which prevent us from reading it exactly."""
    unknown = set(table.protocol().reader_features or ()) - _READABLE_FEATURES
    if unknown:
        raise LakeError(
            f"{_title(path)} has the table feature {', '.join(sorted(unknown))}, which is not read "
            "yet. Drop the feature, or publish the table through a Spark model",
        )
    if any(batch.num_rows for batch in table.deletion_vectors()):
        raise LakeError(
            f"{_title(path)} has deletion vectors, which are not read yet: hyperd would read "
            "deleted rows. Run REORG TABLE ... APPLY (PURGE), and set the table property "
            "delta.enableDeletionVectors to false",
        )


def _file(
    name: str,
    footer: Footer,
    columns: list[Column],
    physical: Mapping[str, str],
    partition: Mapping[str, Any],
) -> DataFile:
    """Return a file, with the layout of the columns in it.

    Args:
        physical: for each column, its name in the files.
        partition: for the name of each partition column, the column's value in this file.
    """
    # A log may have the logical or the physical names of partition columns.
    values = {column: partition.get(column, partition.get(physical[column])) for column in physical}
    layout: Layout = tuple(
        StoredColumn(column, physical[column.name])
        if physical[column.name] in footer.columns
        else StoredColumn(column, None, partition_text(values[column.name]))
        for column in columns
    )
    return DataFile(name=name, rows=footer.rows, size=footer.size, layout=layout)


def _title(path: str) -> str:
    """Return how messages name a table."""
    return f"The Delta table {path}"
