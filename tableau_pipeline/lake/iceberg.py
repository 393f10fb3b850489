"""Read versions of Iceberg tables: pyiceberg reads the metadata, and hyperd reads the files."""

import gzip
import io
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn, cast
from urllib.parse import unquote, urlsplit

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import FileScanTask, ManifestGroupPlanner, StaticTable, Table
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, DoubleType, FixedType, NestedField
from pyiceberg.utils.config import Config

from tableau_pipeline.core.lake_table import InCatalog
from tableau_pipeline.core.snapshot import DataFile, Snapshot
from tableau_pipeline.errors import LakeError, RefreshError
from tableau_pipeline.hyper.parquet import StoredColumn
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.lake import file_credentials
from tableau_pipeline.lake.files import (
    Footer,
    folder_at,
    footers,
    lake_snapshot,
    name_below_table,
    names_in,
    normalized,
    partition_text,
    read_bytes,
    with_deletes,
)
from tableau_pipeline.lake.iceberg_deletes import Deletes, deletes_by_values, deletes_of
from tableau_pipeline.objects.lent import Credentials, lend
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.stores import is_url

_NEWEST_FORMAT = 3
_HINT = "version-hint.text"
# The name of a committed metadata file. If a table has no catalog, writers commit a version by
# giving its metadata file such a name.
_COMMITTED = re.compile(r"v(\d+)\.(\w+\.)?metadata\.json(\.\w+)?")
# The name of a metadata file before its version is committed.
_UNCOMMITTED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.(\w+\.)?metadata\.json")
# Types with different names in Iceberg and Spark; the keys are Iceberg's names, the values are
# Spark's. A "timestamp" has a time zone in Spark, but not in Iceberg.
_TYPES = {
    "long": "bigint",
    "list": "array",
    "timestamp": "timestamp_ntz",
    "timestamptz": "timestamp",
}
# The snapshot id to use for an empty table, which has no snapshot yet.
_EMPTY = 0
# A version number is the schema id times this number, plus the snapshot id. Snapshot ids are
# positive and smaller than this number.
_SCHEMA = 2**63


def newest(location: str | InCatalog) -> str:
    """Return the newest version of a table, as "<id of the table>@<snapshot>/<schema>"."""
    table = _open_table(location)
    snapshot = table.current_snapshot()
    number = snapshot.snapshot_id if snapshot else None
    return f"{table.metadata.table_uuid}@{number}/{table.schema().schema_id}"


def read(
    location: str | InCatalog, *, asset_key: str, number: int | None, copies: LocalCopies
) -> Snapshot | None:
    """Return a version of an Iceberg table; the newest version if `number` is None.

    The number of a version combines the ids of Iceberg's snapshot and of the schema, because a
    schema may change without a new snapshot.

    Returns:
        The version; None if the table no longer has this version.

    Raises:
        RefusedError: the table does not exist, or cannot be read exactly.
        RefreshError: the catalog or the object store failed, or did not answer.
    """
    table, title = _open_table(location), _title(location)
    current, schema = table.current_snapshot(), table.schema()
    if number is not None:
        schema_id, snapshot_id = divmod(number, _SCHEMA)
        if snapshot_id == _EMPTY:
            current = None
        elif (current := table.snapshot_by_id(snapshot_id)) is None:
            return None
        if (schema := table.schemas().get(schema_id)) is None:
            return None
    deletes = _deletes(table, current, title)
    tasks = _tasks(table, current, title)
    table_folder = _folder_of(table, location)
    names = [name_below_table(task.file.file_path, table_folder, table=title) for task in tasks]
    folder = folder_at(table_folder, copies)
    fields = _fields(schema)
    entries = mapping.root if (mapping := table.name_mapping()) else ()
    ids = {name: entry.field_id for entry in entries if entry.field_id for name in entry.names}
    file_footers = footers(folder, names, table=title)
    files = [
        _file(name, footer, task.file, title=title, fields=fields, specs=table.specs(), ids=ids)
        for name, footer, task in zip(names, file_footers, tasks, strict=True)
    ]
    return lake_snapshot(
        asset_key=asset_key,
        folder=folder,
        number=schema.schema_id * _SCHEMA + (current.snapshot_id if current else _EMPTY),
        created_at=datetime.fromtimestamp(current.timestamp_ms / 1000 if current else 0, UTC),
        columns=[column for _, column in fields.values()],
        files=[
            with_deletes(file, deletes.positions(task))
            for file, task in zip(files, tasks, strict=True)
        ],
        identity=str(table.metadata.table_uuid),
    )


def _fields(schema: Schema) -> dict[int, tuple[NestedField, Column]]:
    """Return each Iceberg field with the `Column` for hyperd; the keys are field ids."""
    fields: dict[int, tuple[NestedField, Column]] = {}
    for field in schema.fields:
        # Keep only the kind of a nested type, because Tableau has no nested types.
        kind, is_nested, _ = str(field.field_type).replace(" ", "").partition("<")
        column = Column(field.name, _TYPES.get(kind, kind) + ("<...>" if is_nested else ""))
        fields[field.field_id] = (field, column)
    return fields


def _deletes(table: StaticTable, snapshot: IcebergSnapshot | None, title: str) -> Deletes:
    try:
        manifests = snapshot.manifests(table.io) if snapshot else []
        return deletes_of(manifests, table.io, table.schema(), title)
    except (OSError, ValueError) as error:
        raise LakeError(f"{title} cannot be read: {error}") from error


def _tasks(table: StaticTable, snapshot: IcebergSnapshot | None, title: str) -> list[FileScanTask]:
    """Return pyiceberg's scan task for each data file of a version."""
    if snapshot is None:
        return []
    planner = ManifestGroupPlanner(table.metadata, table.io)
    try:
        manifests = snapshot.manifests(table.io)
        # Leave out equality delete files, because pyiceberg would refuse them. `deletes_of` has
        # already refused those that may still apply to data files.
        tasks = [*planner.plan_files(manifests, lambda entry: not deletes_by_values(entry))]
    except (OSError, ValueError) as error:
        raise LakeError(f"{title} cannot be read: {error}") from error
    if others := {task.file.file_format for task in tasks} - {"PARQUET"}:
        raise LakeError(f"{title} has files of the format {min(others)}; only Parquet is read")
    return tasks


def _file(
    name: str,
    footer: Footer,
    file: IcebergFile,
    *,
    title: str,
    fields: Mapping[int, tuple[NestedField, Column]],
    specs: Mapping[int, PartitionSpec],
    ids: Mapping[str, int],
) -> DataFile:
    """Describe a file: its rows, its size, and how it stores the columns of the table.

    Args:
        fields: the fields of the version with their columns; the keys are field ids.
        specs: all partition specs that the table ever had; the keys are the ids of the specs.
        ids: the field id of each column name, for files without field ids. Such files were not
            written by Iceberg.
    """
    stored = {id_: column for column, id_ in footer.columns.items() if id_ is not None}
    if not stored and not ids:
        raise LakeError(
            f"{title}: its file {file.file_path} names no field ids, and the table has "
            "no schema.name-mapping.default to identify its columns",
        )
    stored = stored or {ids[name]: name for name in footer.columns if name in ids}
    # A file lacks columns that are newer than the file. A file from a Hive table also lacks the
    # partition columns. Take the values of missing columns from the metadata.
    values = {id_: _default_text(field) for id_, (field, _) in fields.items()}
    for number, field in enumerate(specs[file.spec_id].fields):
        if isinstance(field.transform, IdentityTransform) and field.source_id in fields:
            value, type_ = file.partition[number], fields[field.source_id][0].field_type
            is_rounded = isinstance(type_, DoubleType) and not _is_read_exactly()
            if is_rounded and value is not None and field.source_id not in stored:
                raise LakeError(
                    f'{title}: its file {file.file_path} lacks the partition column "{field.name}" '
                    "of the type double, whose values this pyiceberg rounds to 32 bits. Rewrite "
                    "its data files (CALL system.rewrite_data_files), or publish it through a "
                    "Spark model"
                )
            is_ours = value is None or isinstance(value, bytes | Decimal)
            as_text = field.transform.to_human_string
            values[field.source_id] = partition_text(value) if is_ours else as_text(type_, value)
    layout = [
        StoredColumn(column, stored.get(id_), None if id_ in stored else values.get(id_))
        for id_, (_, column) in fields.items()
    ]
    return DataFile(name=name, rows=footer.rows, size=footer.size, layout=tuple(layout))


@cache
def _is_read_exactly() -> bool:
    """Whether pyiceberg reads 64-bit floats exactly; pyiceberg 0.12 with Cython rounds them."""
    return new_decoder(struct.pack("<d", 0.1)).read_double() == 0.1


def _default_text(field: NestedField) -> str | None:
    """Return the value of a field in files older than the field, as text for hyperd."""
    value = field.initial_default
    # The metadata are JSON, in which bytes are hexadecimal digits.
    is_bytes = isinstance(field.field_type, BinaryType | FixedType) and isinstance(value, str)
    return partition_text(bytes.fromhex(value) if is_bytes else value)


def _open_table(location: str | InCatalog) -> StaticTable:
    """Open a table with its current metadata, found through its catalog or in its folder.

    Raises:
        RefusedError: the Iceberg table does not exist, or pyiceberg cannot read it.
        RefreshError: the catalog or the object store failed, or did not answer.
    """
    if isinstance(location, InCatalog):
        loaded = _load_from_catalog(location)
        metadata, source = loaded.metadata, loaded.metadata_location
        _lend_credentials(loaded, location)
    else:
        source = _current_metadata(location)
        try:
            metadata = FromInputFile.table_metadata(LakeIO().new_input(source))
        except (OSError, ValueError, EOFError, zlib.error, ValidationError) as error:
            # Leave out the end of pydantic's message, which shows the content and a help link.
            reason = " ".join(str(error).partition(" [type=")[0].split())
            raise LakeError(f"{_title(location)} cannot be read: {source}: {reason}") from error
    if metadata.format_version > _NEWEST_FORMAT:
        raise LakeError(
            f"{_title(location)} has version {metadata.format_version} of the format; "
            f"versions 1 to {_NEWEST_FORMAT} are read. Publish it through a Spark model",
        )
    return StaticTable(
        identifier=("static-table", source),
        metadata_location=source,
        metadata=metadata,
        # Set the FileIO, because a property of the table may make pyiceberg choose another FileIO.
        io=LakeIO(),
        catalog=NoopCatalog("static-table"),
    )


def _folder_of(table: StaticTable, location: str | InCatalog) -> str:
    """Return the path or URL of the folder that contains all files of a table.

    Raises:
        RefusedError: the table's metadata name another location than the declared location, or a
            URL that is not the URL of an object store.
    """
    folder = normalized(table.location())
    is_at_url = is_url(folder, setting=f"The location of {_title(location)}")
    if isinstance(location, InCatalog) or folder == location:
        return folder
    # Accept a declared path that is a link to the folder.
    if (
        is_at_url
        or is_url(location, setting="source")
        or Path(folder).resolve() != Path(location).resolve()
    ):
        raise LakeError(
            f"{_title(location)} states that it is at {folder}: declare this location, or "
            "the catalog that has the table",
        )
    return folder


def _title(location: str | InCatalog) -> str:
    """Return the name of a table for messages."""
    return f"The Iceberg table {location}"


def _current_metadata(path: str) -> str:
    """Return the newest committed metadata file of a table that has no catalog."""
    folder = f"{path}/metadata"
    committed: dict[int, list[str]] = {}
    for name in names_in(folder):
        # Skip Hadoop's checksum files, whose names begin with a dot.
        if ".metadata.json" not in name or name.startswith("."):
            continue
        if match := _COMMITTED.fullmatch(name):
            committed.setdefault(int(match[1]), []).append(name)
        elif not _UNCOMMITTED.fullmatch(name):
            raise LakeError(
                f"{_title(path)} has a catalog, as {folder}/{name} shows, and only the catalog "
                "knows which version is current: declare source: {iceberg: {catalog: ..., "
                "table: ...}}",
            )
    if not committed:
        raise LakeError(
            f"{_title(path)} does not exist: there is no {folder}/v*.metadata.json. Correct "
            "`source`, or create the table",
        )
    number = _newest_number(folder, committed)
    if len(committed[number]) > 1:
        raise LakeError(
            f"{_title(path)} has two files of metadata of version {number}: "
            f"{' and '.join(sorted(committed[number]))}. Remove the wrong one",
        )
    return f"{folder}/{committed[number][0]}"


def _newest_number(folder: str, committed: Mapping[int, object]) -> int:
    """Return the number of the newest version, found by the same rule as in Iceberg itself."""
    hint = read_bytes(f"{folder}/{_HINT}")
    if hint is None:
        return max(committed)
    text = hint.decode(errors="replace").strip()
    if not text.isdecimal() or int(text) not in committed:
        raise LakeError(
            f'{folder}/{_HINT} says "{text}", but there is no v{text}.metadata.json. Correct the '
            "file, or remove it",
        )
    number = int(text)
    # The hint may be old, because Iceberg writes the hint after the version: look for newer
    # versions.
    while number + 1 in committed:
        number += 1
    return number


class LakeIO(FileIO):
    """Reads whole files for pyiceberg, with the credentials that this package's other reads use.

    pyiceberg's own readers would have other settings and errors for each kind of store.
    """

    def new_input(self, location: str) -> "LakeFile":
        """Return the file at a location."""
        # Set the credentials for this folder now: a catalog without a server reads the metadata of
        # a table before `_lend_credentials` gets the table.
        if name := self.properties.get(_CATALOG):
            folder = normalized(location).rpartition("/")[0]
            lend(
                folder, file_credentials.of_settings(self.properties, folder), lender=_lender(name)
            )
        return LakeFile(location)

    def new_output(self, location: str) -> NoReturn:
        """Refuse to write."""
        raise NotImplementedError(f"{location} is only read")

    def delete(self, location: str | InputFile | OutputFile) -> NoReturn:
        """Refuse to delete."""
        raise NotImplementedError(f"{location} is only read")


class LakeFile(InputFile):
    """A file of a lake."""

    def __len__(self) -> int:
        return len(self._content())

    def exists(self) -> bool:
        """Return whether the file exists."""
        return read_bytes(normalized(self.location)) is not None

    def open(self, seekable: bool = True) -> InputStream:
        """Return a stream of the whole content in memory, because metadata files are small."""
        return cast("InputStream", io.BytesIO(self._content()))

    def _content(self) -> bytes:
        content = read_bytes(normalized(self.location))
        if content is None:
            raise FileNotFoundError(f"there is no file {self.location}")
        # Unpack files with names of the older form, such as v1.metadata.json.gz. pyiceberg unpacks
        # only files with names of the newer form, such as v1.gz.metadata.json.
        is_packed = self.location.endswith(".metadata.json.gz")
        return gzip.decompress(content) if is_packed else content


_PROPERTIES = {
    "py-io-impl": "tableau_pipeline.lake.iceberg.LakeIO",
    # Reading must create nothing, but a catalog in a database would create its tables.
    "init_catalog_tables": "false",
}
# The property in which `LakeIO` gets the name of the catalog.
_CATALOG = "tableau_pipeline.catalog"
# The catalog settings whose values may appear in messages.
_SHOWN_SETTINGS = ("type", "uri", "warehouse")
# The length up to which texts are not masked. Such short texts are no secrets, and occur in any
# message.
_LONGEST_SHOWN = 3
# A property with credentials, and its value, in JSON text.
_HANDED_OUT = re.compile(r"""((?:s3|client|gcs|adls)\.[\w.-]+\\?["']\s*:\s*\\?["'])[^"'\\]*""")


def _load_from_catalog(location: InCatalog) -> Table:
    """Load a table from its catalog.

    Raises:
        RefusedError: pyiceberg does not know the catalog, or the catalog lacks the table.
        RefreshError: the request to the catalog failed.
    """
    # Read the configuration here, because pyiceberg itself reads it only once in a process.
    config, name = Config(), location.catalog
    settings: Any = config.get_catalog_config(name)
    if settings is None:
        others = ", ".join(sorted(config.get_known_catalogs())) or "none"
        raise LakeError(
            f'pyiceberg knows no catalog "{name}" for the Iceberg table {location.table}; '
            f"it knows {others}. Correct `source`, or declare the catalog in "
            f".pyiceberg.yaml or by variables such as PYICEBERG_CATALOG__{name.upper()}__URI",
        )
    try:
        properties = {**settings, **_PROPERTIES, _CATALOG: name}
        with load_catalog(name, **properties) as catalog:
            return catalog.load_table(location.table)
    except (NoSuchTableError, NoSuchNamespaceError):
        raise LakeError(
            f'The catalog {location.catalog} has no Iceberg table "{location.table}": correct '
            "`source`, or create the table",
        ) from None
    except RefreshError:
        raise
    except Exception as error:  # noqa: BLE001 - each kind of catalog has errors of its own
        raise RefreshError(
            f"The catalog {location.catalog} cannot be asked for the Iceberg table "
            f"{location.table}: {_masked_reason(error, settings)}. Check its "
            "configuration for pyiceberg and the network, then run again"
        ) from None


def _lend_credentials(table: Table, location: InCatalog) -> None:
    """Use the credentials of the catalog for all reads of the table's files."""
    folder = normalized(table.location())
    metadata_folder = normalized(table.metadata_location or "").rpartition("/")[0]
    # The metadata may be outside the folder of the table.
    is_below = f"{metadata_folder}/".startswith(f"{folder}/")
    for each in (folder,) if is_below else (folder, metadata_folder):
        lend(
            each,
            file_credentials.of_table(table, each),
            renew=partial(_renewed, location, each),
            lender=_lender(location.catalog),
        )


def _lender(catalog: str) -> str:
    return f'pyiceberg\'s catalog "{catalog}"'


def _renewed(location: InCatalog, folder: str) -> Credentials:
    """Return new credentials for a folder, to replace credentials that expire.

    Raises:
        RefusedError: the catalog no longer has the table.
        RefreshError: the request to the catalog failed, or the catalog hands out no credentials.
    """
    credentials = file_credentials.of_table(_load_from_catalog(location), folder)
    if credentials is None:
        raise RefreshError(
            f"The credentials that the catalog {location.catalog} handed out for the Iceberg table "
            f"{location.table} expire, and the catalog hands out none in their place. Let it hand "
            "out credentials again, then run again"
        )
    return credentials


def _masked_reason(error: Exception, known: Mapping[str, Any]) -> str:
    """Return the first line of an error, with secrets masked."""
    text = str(error).strip().partition("\n")[0].rstrip(".") or "it gave no reason"
    for secret in sorted(_secrets(known), key=len, reverse=True):
        text = text.replace(secret, "***")
    # Mask credentials: the error may quote an answer of the catalog that contains them.
    text = _HANDED_OUT.sub(r"\1***", text)
    return f"{type(error).__name__}: {re.sub(r'//[^/@ ]*@', '//', text)}"


def _secrets(known: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts in a catalog's configuration that must stay secret."""
    for name, value in known.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif name not in _SHOWN_SETTINGS:
            yield from (part for part in str(value).split(":") if len(part) > _LONGEST_SHOWN)
    with suppress(ValueError):
        if password := urlsplit(str(known.get("uri", ""))).password:
            yield from (password, unquote(password))
