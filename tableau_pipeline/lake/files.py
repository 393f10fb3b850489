"""Describe a lake table's Parquet files as a snapshot, which is one version of a model."""

import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.core.snapshot import FILES_DIGEST, DataFile, Fingerprint, Part, Snapshot
from tableau_pipeline.errors import LakeError
from tableau_pipeline.hyper.parquet import Folder, LocalFolder
from tableau_pipeline.hyper.types import ROW_HASH, Column
from tableau_pipeline.objects.kept_rows import LakeFolder
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.old_calendar import Suspects, is_legacy, old_times, suspects
from tableau_pipeline.objects.stores import (
    ObjectFolder,
    bucket_and_key,
    canonical,
    is_url,
    list_folder,
    read_footer,
    read_object,
)

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class Footer:
    """The parts of a Parquet file's footer that are needed here, and the size of the file.

    Attributes:
        size: the size of the file in bytes.
        columns: the field id of each column, or None if the column has no field id; the keys are
            column names.
        old_times: the columns that may have times in the calendar of old releases of Spark; see
            `Suspects`.
    """

    rows: int
    size: int
    columns: Mapping[str, int | None]
    old_times: Suspects


def footers(folder: Folder, names: Sequence[str], *, table: str) -> list[Footer]:
    """Read the footers of Parquet files.

    Raises:
        RefusedError: a file is missing, or is not a Parquet file. The message begins with `table`.
        StoreError: the object store failed, or did not answer.
    """
    with ThreadPoolExecutor() as pool:
        try:
            return list(pool.map(_footer, map(folder.uri, names)))
        except (OSError, pa.ArrowInvalid) as error:
            raise LakeError(
                f"{table}: one of its files cannot be read ({error}). If it was vacuumed or "
                "removed by hand, restore it, or write the table again",
            ) from error


def lake_snapshot(
    *,
    asset_key: str,
    folder: Folder,
    number: int,
    created_at: datetime,
    columns: Sequence[Column],
    files: Sequence[DataFile],
    identity: str,
) -> Snapshot:
    """Return a version of a table.

    Args:
        folder: the folder of the table; the names of files are relative to it.
        identity: the id of the table; a new table that replaces this table gets another id.

    Raises:
        RefusedError: a column cannot be read.
    """
    for column in columns:
        kind, is_nested, _ = column.type.partition("<")
        problem = "has the name of the hashes of rows" if column.name == ROW_HASH else ""
        if is_nested:
            # Refuse nested columns. A snapshot of a Spark model contains the JSON text of such
            # columns, which is published instead. The files of a lake do not contain this text.
            problem = problem or f"is of the type {kind}, which is not read"
        if problem:
            raise LakeError(
                f'The table {folder.uri("")}: column "{column.name}" {problem}. Publish the table '
                "through a Spark model that selects other columns from it",
            )
    # Include layouts: after a column is dropped and added again under its old name, the same files
    # mean other rows. Include the bitmaps of kept rows: a delete may leave the files unchanged.
    layouts = {file.layout: repr(file.layout) for file in files}
    file_layouts = sorted((file.name, layouts[file.layout], *_kept_text(file)) for file in files)
    digest = hashlib.sha256(repr((identity, [*columns], file_layouts)).encode()).hexdigest()
    fingerprint = Fingerprint(
        rows=sum(file.rows for file in files),
        hash_sum=int(digest[:16], 16),
        algorithm=FILES_DIGEST,
    )
    return Snapshot(
        folder=folder,
        asset_key=asset_key,
        number=number,
        created_at=created_at,
        run_id="",
        columns=tuple(columns),
        parts=(Part(version=number, fingerprint=fingerprint, files=tuple(files)),),
    )


def _kept_text(file: DataFile) -> tuple[str, ...]:
    return () if file.kept is None else (f"{file.kept:x}",)


def with_deletes(file: DataFile, deleted: Iterable[int]) -> DataFile:
    """Return a file without the rows at some positions; positions count from 0."""
    bits = bytearray(file.rows // 8 + 1)
    for position in deleted:
        # Ignore positions after the last row.
        if position < file.rows:
            bits[position // 8] |= 1 << position % 8
    return keep(file, ~int.from_bytes(bits, "little"))


def keep(file: DataFile, kept: int) -> DataFile:
    """Return a file with only the rows whose bits are set in `kept`; see `DataFile.kept`."""
    all_rows = (1 << file.rows) - 1
    kept &= all_rows
    if kept == all_rows:
        return file
    return file.model_copy(update={"kept": kept, "rows": kept.bit_count()})


def partition_text(value: Any) -> str | None:
    """Return the value of a partition column as text for hyperd."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case bytes():
            return f"\\x{value.hex()}"
        case _:
            return str(value)


# Cache footers: the files of a lake never change, and a refresh reads two versions that may share
# files.
@lru_cache(maxsize=100_000)
def _footer(uri: str) -> Footer:
    if uri.startswith("file:"):
        path = unquote(urlsplit(uri).path)
        metadata, size = pq.read_metadata(path), Path(path).stat().st_size
    else:
        end, size = read_footer(uri)
        metadata = pq.read_metadata(io.BytesIO(end))
    columns: dict[str, int | None] = {}
    for field in metadata.schema.to_arrow_schema():
        id_ = int((field.metadata or {}).get(_FIELD_ID, -1))
        columns[field.name] = id_ if id_ >= 0 else None
    keys = metadata.metadata or {}
    times = suspects(metadata, lambda int96: is_legacy(keys, int96=int96))
    return Footer(rows=metadata.num_rows, size=size, columns=columns, old_times=times)


def column_of_old_calendar(
    folder: Folder, file: DataFile, footer: Footer
) -> tuple[Column, date] | None:
    """Find a column with times that an old release of Spark stored in an older calendar.

    If the footer has no statistics, only the values show whether a column has such times. So this
    function may read the values of a file that an old release of Spark wrote.

    Returns:
        The column, and the date from which both calendars agree; None if there is no such column.
    """
    read = {stored.name: stored.column for stored in file.layout or () if stored.name}
    names = tuple(name for name in footer.old_times if name in read)
    if not names:
        return None
    (path,) = folder.paths([file.name])
    found = _old_times(folder.uri(file.name), path, names)
    return (read[found[0]], found[1]) if found else None


@lru_cache(maxsize=100_000)
def _old_times(uri: str, path: str, names: tuple[str, ...]) -> tuple[str, date] | None:
    times = _footer(uri).old_times
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
        return old_times(file, {name: times[name] for name in names})


# Some writers record the path of a local file as a URL.
_FILE = re.compile("^file:(//)?")


def folder_at(location: str, copies: LocalCopies) -> LakeFolder:
    """Return the folder of the table at a path or URL."""
    if is_url(location, setting="source"):
        return LakeFolder(ObjectFolder(*bucket_and_key(location), copies), copies)
    return LakeFolder(LocalFolder(Path(location)), copies)


def names_in(location: str) -> list[str]:
    """Return the names of the files that are directly in a folder, not in a subfolder."""
    if is_url(location, setting="source"):
        return list(list_folder(location))
    return [path.name for path in Path(location).glob("*")]


def read_bytes(location: str) -> bytes | None:
    """Return the content of a file; None if the file does not exist."""
    if is_url(location, setting="source"):
        return read_object(location)
    path = Path(location)
    return path.read_bytes() if path.exists() else None


def normalized(logged: str) -> str:
    """Convert a path or URL from the metadata of a table to the form that this package uses."""
    return canonical(_FILE.sub("", logged)).rstrip("/")


def name_below_table(logged: str, location: str, *, table: str) -> str:
    """Return the name of a file relative to the folder of its table.

    Args:
        logged: the name, path or URL of the file, from the metadata of the table, without escapes.
        location: the path or URL of the table.
        table: the name of the table for messages.

    Raises:
        RefusedError: the file is outside the folder of the table.
    """
    file = normalized(logged).removeprefix(f"{location}/")
    if file.startswith("/") or "://" in file or ".." in file.split("/"):
        raise LakeError(
            f"{table} has files elsewhere, such as {logged}. Only files below {location} are read: "
            "copy the table, or publish it through a Spark model",
        )
    return file
