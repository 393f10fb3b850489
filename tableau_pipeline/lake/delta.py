"""Read versions of Delta tables: deltalake reads the log, and hyperd reads the files."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
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
    column_of_old_calendar,
    folder_at,
    footers,
    keep,
    lake_snapshot,
    name_below_table,
    partition_text,
    read_bytes,
)
from tableau_pipeline.objects.errors import describe_failure
from tableau_pipeline.objects.kept_rows import LakeFolder
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.stores import StoreError, is_url

# Types with different names in Delta and Spark; the keys are Delta's names, the values are Spark's.
_TYPES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_PHYSICAL_NAME, _FIELD_ID = "delta.columnMapping.physicalName", "delta.columnMapping.id"
# Like the stores' own SDKs, accept an endpoint that begins with http://.
_OPTIONS = {"allow_http": "true"}
_READABLE_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "v2Checkpoint",
    "vacuumProtocolCheck",
}
# The keys are types to which a column may be widened. The values are the narrower types that hyperd
# reads as the wider type. hyperd also reads a narrower decimal type as a wider decimal type, if
# both have equally many digits after the point.
_WIDENED = {
    "short": ("byte",),
    "integer": ("byte", "short"),
    "long": ("byte", "short", "integer"),
    "double": ("float",),
}
_DECIMAL = re.compile(r"decimal\(\d+,\s*(\d+)\)")


def read(path: str, *, asset_key: str, number: int | None, copies: LocalCopies) -> Snapshot | None:
    """Return a version of a Delta table; the newest version if `number` is None.

    Returns:
        The version; None if the log no longer has this version.

    Raises:
        RefusedError: the table does not exist, or cannot be read exactly.
        StoreError: the object store failed, or did not answer.
    """
    table = _open_table(path, number=number)
    if table is None:
        return None
    _check_features(table, path)
    columns, stored = _columns(table)
    # Avoid pa.table, which would import pandas. That import takes longer than reading the log.
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
    # The column "partition" is missing or NULL if the table has no partition columns.
    action_fields = {"path", "modification_time", "partition"}.intersection(actions.schema.names)
    added = actions.select(sorted(action_fields)).to_pylist()
    # Undo escapes: the log escapes the names of files as in URLs.
    names = [
        name_below_table(unquote(action["path"]), path, table=_title(path)) for action in added
    ]
    folder = folder_at(path, copies)
    file_footers = dict(zip(names, footers(folder, names, table=_title(path)), strict=True))
    _check_field_ids(file_footers, stored, path)
    files = {
        name: _file(name, footer, columns, stored, action.get("partition") or {})
        for (name, footer), action in zip(file_footers.items(), added, strict=True)
    }
    _check_calendar(folder, files.values(), file_footers, path)
    for name, kept in _kept_rows(table, path):
        if name not in files:
            raise LakeError(
                f"{_title(path)} has a deletion vector for {name}, which is not one of its files. "
                "Write the table again, or publish it through a Spark model"
            )
        files[name] = keep(files[name], kept)
    last_change = max((action["modification_time"] for action in added), default=0)
    return lake_snapshot(
        asset_key=asset_key,
        folder=folder,
        number=table.version(),
        created_at=_committed_at(table, path) or datetime.fromtimestamp(last_change / 1000, UTC),
        columns=columns,
        files=[*files.values()],
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
        raise LakeError(
            f"{_title(path)} cannot be read: {error}. If it has a table feature that is not read, "
            "or catalog-managed commits (only a catalog knows the current version), publish it "
            "through a Spark model that reads it by its name in the catalog"
        ) from error
    except OSError as error:
        if is_url(path, setting="source"):
            # Drop the original error: it shows the whole request, which may contain a signature.
            raise StoreError(describe_failure(error, "Reading", path)) from None
        raise LakeError(f"{_title(path)} cannot be read: {error}") from error


def _check_features(table: DeltaTable, path: str) -> None:
    """Refuse a table if one of its features prevents us from reading it exactly."""
    features = {
        feature.removesuffix("-preview") for feature in table.protocol().reader_features or ()
    }
    if unknown := features - _READABLE_FEATURES:
        raise LakeError(
            f"{_title(path)} has the table feature {', '.join(sorted(unknown))}, which is not read "
            "yet. Drop the feature (ALTER TABLE ... DROP FEATURE), or publish the table through a "
            "Spark model",
        )
    if len(features & {"deletionVectors", "typeWidening"}) > 1:
        raise LakeError(
            f"{_title(path)} has deletion vectors and type widening at once, which deltalake does "
            "not read. Drop one of them (ALTER TABLE ... DROP FEATURE typeWidening), or publish "
            "the table through a Spark model"
        )
    partition_columns = set(table.metadata().partition_columns)
    for field in table.schema().fields:
        # Refuse binary partition columns. Most writers escape the bytes of binary values in the
        # log, but some do not. deltalake returns the log's text unchanged, so it is unknown which
        # bytes the text means.
        if field.name in partition_columns and str(field.type.type) == "binary":
            raise LakeError(
                f'{_title(path)} is partitioned by the binary column "{field.name}", whose values '
                "deltalake does not read as they are. Partition the table by another column, or "
                "publish it through a Spark model"
            )
        # Delta's specification defines the key "delta.typeChanges".
        for change in field.metadata.get("delta.typeChanges") or ():
            before, after = change["fromType"], change["toType"]
            if not _is_read_as(before, after):
                raise LakeError(
                    f'{_title(path)}: column "{field.name}" was widened from {before} to {after}; '
                    "files that hold the narrower type are not read. Rewrite them (ALTER TABLE ... "
                    "DROP FEATURE typeWidening), or publish the table through a Spark model"
                )


def _is_read_as(before: str, after: str) -> bool:
    """Return whether hyperd reads the narrower type of a file as the type of the column."""
    scales = [_DECIMAL.fullmatch(type_) for type_ in (before, after)]
    if all(scales):
        return len({scale and scale[1] for scale in scales}) == 1
    return before in _WIDENED.get(after, ())


@dataclass(frozen=True, slots=True)
class _Stored:
    """How to find the columns of a table in its files.

    Attributes:
        names: for each column, its physical name, which is the name that Delta uses in files.
        ids: for each column, its field id; None if names identify the columns.
    """

    names: Mapping[str, str]
    ids: Mapping[str, int] | None

    def in_file(self, footer: Footer) -> dict[str, str | None]:
        """Return the name of each column in a file; None for a column that the file lacks."""
        if self.ids is None:
            return {
                column: name if name in footer.columns else None
                for column, name in self.names.items()
            }
        found = {id_: name for name, id_ in footer.columns.items() if id_ is not None}
        return {column: found.get(id_) for column, id_ in self.ids.items()}


def _check_field_ids(files: Mapping[str, Footer], stored: _Stored, path: str) -> None:
    """Refuse a file without field ids if only field ids identify the columns."""
    if stored.ids is None:
        return
    for name, footer in files.items():
        if not any(id_ is not None for id_ in footer.columns.values()):
            raise LakeError(
                f"{_title(path)} identifies its columns by field ids (delta.columnMapping.mode is "
                f"id), and its file {name} names none. Write the table again, or publish it "
                "through a Spark model"
            )


def _check_calendar(
    folder: LakeFolder, files: Iterable[DataFile], footers_: Mapping[str, Footer], path: str
) -> None:
    """Refuse dates and times that an old release of Spark stored in an older calendar.

    Only Spark converts such values when it reads a file; hyperd would show other dates.
    """
    for file in files:
        if found := column_of_old_calendar(folder, file, footers_[file.name]):
            column, first = found
            raise LakeError(
                f'{_title(path)}: in its file {file.name}, column "{column.name}" has times before '
                f"{first:%Y-%m-%d}, and an old release of Spark stored them in an older calendar. "
                "Write the table again with a newer one, or publish it through a Spark model"
            )


def _columns(table: DeltaTable) -> tuple[list[Column], _Stored]:
    """Return the columns of a table, and how to find them in files."""
    fields = table.schema().fields
    # Keep only the kind of a nested type, because Tableau has no nested types.
    kinds = [str(field.type.type) for field in fields]
    types = [
        f"{kind}<...>" if kind in ("array", "map", "struct") else _TYPES.get(kind, kind)
        for kind in kinds
    ]
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    names = {
        field.name: field.name if mode == "none" else str(field.metadata[_PHYSICAL_NAME])
        for field in fields
    }
    ids = {field.name: int(field.metadata[_FIELD_ID]) for field in fields} if mode == "id" else None
    columns = [Column(field.name, type_) for field, type_ in zip(fields, types, strict=True)]
    return columns, _Stored(names, ids)


def _kept_rows(table: DeltaTable, path: str) -> Iterator[tuple[str, int]]:
    """Yield the name of each file with a deletion vector, and a bitmap of the rows to keep.

    Raises:
        RefusedError: a deletion vector is missing or damaged.
    """
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return
    try:
        for batch in table.deletion_vectors():
            found = pa.record_batch(batch)
            masks = found["selection_vector"]
            edges = pairwise(masks.offsets.to_pylist())
            for url, (start, end) in zip(found["filepath"].to_pylist(), edges, strict=True):
                # Undo escapes in both: the URL of the file, and the URL of the table.
                name = unquote(url).removeprefix(f"{unquote(table.table_uri).rstrip('/')}/")
                yield name, _bitmap(masks.values, start, end)
    except DeltaError as error:
        raise LakeError(
            f"{_title(path)} has a deletion vector that cannot be read: {error}. If its file was "
            "vacuumed or removed by hand, restore it, or write the table again"
        ) from error


def _bitmap(mask: pa.BooleanArray, start: int, end: int) -> int:
    """Return the bits of a mask from `start` to `end` as a bitmap (see `DataFile.kept`).

    The bitmap keeps all rows after the end of the mask: a mask may be shorter than its file.
    """
    _, data = mask.buffers()
    start, end = start + mask.offset, end + mask.offset
    bits = int.from_bytes(data[start // 8 : (end + 7) // 8], "little") >> start % 8
    length = end - start
    return (bits & ((1 << length) - 1)) | -1 << length


def _committed_at(table: DeltaTable, path: str) -> datetime | None:
    """Return the commit time of the opened version; None if the log does not have the time."""
    # Read the log here, because deltalake's own history returns the newest commit even for an older
    # version.
    commit = read_bytes(f"{path}/_delta_log/{table.version():020}.json") or b""
    for line in commit.splitlines():
        if about := json.loads(line).get("commitInfo"):
            # Prefer `inCommitTimestamp` to `timestamp`, as Delta's time travel does.
            moment = about.get("inCommitTimestamp") or about.get("timestamp")
            return datetime.fromtimestamp(moment / 1000, UTC) if moment else None
    return None


def _file(
    name: str,
    footer: Footer,
    columns: list[Column],
    stored: _Stored,
    partition: Mapping[str, Any],
) -> DataFile:
    """Describe a file: its rows, its size, and how it stores the columns of the table.

    Args:
        partition: the value of each partition column in this file; the keys are column names.
    """
    # A log may contain the logical or the physical names of partition columns.
    values = {
        name: partition.get(name, partition.get(other)) for name, other in stored.names.items()
    }
    here = stored.in_file(footer)
    layout: Layout = tuple(
        StoredColumn(column, here[column.name])
        if here[column.name]
        else StoredColumn(column, None, partition_text(values[column.name]))
        for column in columns
    )
    return DataFile(name=name, rows=footer.rows, size=footer.size, layout=layout)


def _title(path: str) -> str:
    """Return the name of a table for messages."""
    return f"The Delta table {path}"
