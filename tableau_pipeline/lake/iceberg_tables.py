"""Read versions of Iceberg tables: the metadata by pyiceberg, the files by hyperd."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from tableau_pipeline.core.declaration import InCatalog
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.tables import Column, Layout, StoredColumn
from tableau_pipeline.lake.files import Footer, data_file, footers, lake_snapshot, partition_text
from tableau_pipeline.lake.iceberg_metadata import folder_of, named, open_iceberg
from tableau_pipeline.lake.locations import file_name, folder_at
from tableau_pipeline.objects.local_copies import LocalCopies

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, StaticTable
    from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
    from pyiceberg.types import IcebergType

# Iceberg's names of types that differ from Spark's; the other way round for zones.
_TYPES = {"long": "bigint", "timestamp": "timestamp_ntz", "timestamptz": "timestamp"}
# In place of the id of a snapshot: an empty table has none yet.
_EMPTY = 0
# The unit of ids of schemas in numbers of versions: ids of snapshots are positive and smaller.
_SCHEMA = 2**63


def read_iceberg(
    location: str | InCatalog, *, asset_key: str, number: int | None, copies: LocalCopies
) -> Snapshot | None:
    """Return a version of an Iceberg table; the newest one if `number` is None.

    The number of a version is the id of Iceberg's snapshot, with that of the schema above it: a
    schema changes without a new snapshot.

    Returns:
        None if the table no longer has the version.

    Raises:
        RefusedError: there is no table, or it needs something that cannot be read exactly.
        RefreshError: the catalog or the object store failed, or did not answer.
    """
    table, title = open_iceberg(location), named(location)
    current, schema = table.current_snapshot(), table.schema()
    if number is not None:
        schema_id, snapshot_id = divmod(number, _SCHEMA)
        if snapshot_id == _EMPTY:
            current = None
        elif (current := table.snapshot_by_id(snapshot_id)) is None:
            return None
        if (schema := table.schemas().get(schema_id)) is None:
            return None
    tasks = _tasks(table, current, title)
    place = folder_of(table, location)
    names = [file_name(task.file.file_path, place, table=title) for task in tasks]
    folder = folder_at(place, copies)
    version = _Version.of(table, schema, title)
    found = footers(folder, names, table=title)
    return lake_snapshot(
        asset_key=asset_key,
        folder=folder,
        number=schema.schema_id * _SCHEMA + (current.snapshot_id if current else _EMPTY),
        created_at=datetime.fromtimestamp(current.timestamp_ms / 1000 if current else 0, UTC),
        columns=version.columns,
        files=[
            data_file(name, footer, version.layout(task.file, footer))
            for name, footer, task in zip(names, found, tasks, strict=True)
        ],
        identity=str(table.metadata.table_uuid),
    )


def _tasks(
    table: "StaticTable", snapshot: "IcebergSnapshot | None", title: str
) -> "list[FileScanTask]":
    """Return the files of a version."""
    if snapshot is None:
        return []
    try:
        tasks = list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
    except (OSError, ValueError) as error:
        raise RefusedError(f"{title} cannot be read: {error}") from error
    for task in tasks:
        _check_readable(task, title)
    return tasks


def _check_readable(task: "FileScanTask", title: str) -> None:
    if task.delete_files:
        raise RefusedError(
            f"{title} has delete files, which are not read yet: hyperd would read deleted "
            "rows. Rewrite its data files, and set write.delete.mode, write.update.mode and "
            "write.merge.mode to copy-on-write"
        )
    if task.file.file_format != "PARQUET":
        raise RefusedError(
            f"{title} has files of the format {task.file.file_format}; only Parquet is read"
        )


def _spark_type(type_: Any) -> str:
    """Return Spark's name of a type; of a nested type, its kind."""
    from pyiceberg.types import DecimalType, ListType, MapType, StructType

    match type_:
        case DecimalType():
            return f"decimal({type_.precision},{type_.scale})"
        case ListType():
            return "array<...>"
        case MapType():
            return "map<...>"
        case StructType():
            return "struct<...>"
        case _:
            return _TYPES.get(str(type_), str(type_))


def _ids_by_name(table: "StaticTable") -> Mapping[str, int]:
    """Return the field ids of the columns of files that Iceberg did not write itself."""
    mapping = table.name_mapping()
    if mapping is None:
        return {}
    return {name: each.field_id for each in mapping.root if each.field_id for name in each.names}


@dataclass(frozen=True, slots=True)
class _Version:
    """How the files of a version hold its columns.

    Attributes:
        title: names the table in messages.
        ids: the field ids of the columns of files that Iceberg did not write itself, by name.
        specs: how the table was partitioned at any time, by the number that files have.
    """

    title: str
    schema: "Schema"
    columns: tuple[Column, ...]
    ids: Mapping[str, int]
    specs: "Mapping[int, PartitionSpec]"

    @classmethod
    def of(cls, table: "StaticTable", schema: "Schema", title: str) -> Self:
        """Return how files are read by a schema of their table."""
        columns = [Column(each.name, _spark_type(each.field_type)) for each in schema.fields]
        return cls(title, schema, tuple(columns), _ids_by_name(table), table.specs())

    def layout(self, file: "DataFile", footer: Footer) -> Layout:
        """Return how a file holds the columns.

        Raises:
            RefusedError: nothing tells which column of the file is which.
        """
        stored = {id_: column for column, id_ in footer.columns.items() if id_ is not None}
        if not stored and not self.ids:
            raise RefusedError(
                f"{self.title}: its file {file.file_path} names no field ids, and the table has "
                "no schema.name-mapping.default to tell which column is which"
            )
        if not stored:
            stored = {self.ids[name]: name for name in footer.columns if name in self.ids}
        values, ids = self._values(file), [field.field_id for field in self.schema.fields]
        return tuple(
            StoredColumn(column, stored.get(id_), None if id_ in stored else values.get(id_))
            for id_, column in zip(ids, self.columns, strict=True)
        )

    def _values(self, file: "DataFile") -> Mapping[int, str | None]:
        """Return the values of the partition that are values of columns, by field id.

        The files of a Hive table hold no such columns, and Iceberg takes them over as they are.
        """
        from pyiceberg.transforms import IdentityTransform

        types = {field.field_id: field.field_type for field in self.schema.fields}
        return {
            each.source_id: _text(file.partition[number], types[each.source_id])
            for number, each in enumerate(self.specs[file.spec_id].fields)
            if isinstance(each.transform, IdentityTransform) and each.source_id in types
        }


def _text(value: Any, type_: "IcebergType") -> str | None:
    """Return a value of a manifest as hyperd reads it."""
    from pyiceberg.types import DateType, TimestampType, TimestamptzType
    from pyiceberg.utils.datetime import days_to_date, micros_to_timestamp, micros_to_timestamptz

    match type_:
        case DateType() if value is not None:
            value = days_to_date(value)
        case TimestampType() if value is not None:
            value = micros_to_timestamp(value)
        case TimestamptzType() if value is not None:
            value = micros_to_timestamptz(value)
    return partition_text(value)
