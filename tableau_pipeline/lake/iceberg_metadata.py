"""Open Iceberg tables: which of their metadata is current, their catalog says, or their folder."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tableau_pipeline.core.declaration import InCatalog
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.lake.locations import in_store, names_in, plain, read_bytes

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable
    from pyiceberg.table.metadata import TableMetadata

_NEWEST_FORMAT = 2
_HINT = "version-hint.text"
# A table without a catalog commits a version by giving this name to a file.
_COMMITTED = re.compile(r"v(\d+)\.(\w+\.)?metadata\.json(\.\w+)?")
# Until then, the file has this name.
_UNCOMMITTED = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.(\w+\.)?metadata\.json")


def open_iceberg(location: str | InCatalog) -> "StaticTable":
    """Open an Iceberg table at its current metadata.

    Raises:
        RefusedError: there is no Iceberg table, or pyiceberg is not installed or cannot read it.
        RefreshError: the catalog or the object store failed, or did not answer.
    """
    try:
        from pyiceberg.catalog.noop import NoopCatalog
        from pyiceberg.table import StaticTable

        from tableau_pipeline.lake.iceberg_catalogs import load_table
        from tableau_pipeline.lake.iceberg_files import LakeIO
    except ModuleNotFoundError as error:
        raise RefusedError(
            f"{named(location)} needs pyiceberg: pip install 'tableau_pipeline[iceberg]'"
        ) from error
    if isinstance(location, InCatalog):
        loaded = load_table(location)
        metadata, source = loaded.metadata, loaded.metadata_location
    else:
        source = _current_metadata(location)
        metadata = _read(location, source)
    table = StaticTable(
        identifier=("static-table", source),
        metadata_location=source,
        metadata=metadata,
        # A property of the table may have made pyiceberg choose another one.
        io=LakeIO(),
        catalog=NoopCatalog("static-table"),
    )
    if table.metadata.format_version > _NEWEST_FORMAT:
        raise RefusedError(
            f"{named(location)} has version {table.metadata.format_version} of the format; "
            f"versions 1 and {_NEWEST_FORMAT} are read. Publish it through a Spark model"
        )
    return table


def folder_of(table: "StaticTable", location: str | InCatalog) -> str:
    """Return the path or URL of the folder below which all files of a table are.

    Raises:
        RefusedError: it is in a store that is not read, or not where it was declared to be.
    """
    folder = plain(table.location())
    is_at_url = in_store(folder, of=f"The location of {named(location)}")
    if isinstance(location, InCatalog) or folder == location:
        return folder
    # A path may lead there by a link.
    if is_at_url or in_store(location) or Path(folder).resolve() != Path(location).resolve():
        raise RefusedError(
            f"{named(location)} says of itself that it is at {folder}: declare that, or the "
            "catalog that has the table"
        )
    return folder


def named(location: str | InCatalog) -> str:
    """Return how messages name a table."""
    return f"The Iceberg table {location}"


def _current_metadata(path: str) -> str:
    """Return the newest committed file of metadata of a table that has no catalog."""
    folder = f"{path}/metadata"
    committed: dict[int, list[str]] = {}
    for name in names_in(folder):
        # Hadoop hides its checksums of files behind a dot.
        if ".metadata.json" not in name or name.startswith("."):
            continue
        if match := _COMMITTED.fullmatch(name):
            committed.setdefault(int(match[1]), []).append(name)
        elif not _UNCOMMITTED.fullmatch(name):
            raise RefusedError(
                f"{named(path)} has a catalog, as {folder}/{name} shows, and only the catalog "
                "knows which version is current: declare source: {iceberg: {catalog: ..., "
                "table: ...}}"
            )
    if not committed:
        raise RefusedError(
            f"{named(path)} does not exist: there is no {folder}/v*.metadata.json. Correct "
            "`source`, or create the table"
        )
    number = _newest(folder, committed)
    if len(committed[number]) > 1:
        raise RefusedError(
            f"{named(path)} has two files of metadata of version {number}: "
            f"{' and '.join(sorted(committed[number]))}. Remove the wrong one"
        )
    return f"{folder}/{committed[number][0]}"


def _newest(folder: str, committed: Mapping[int, object]) -> int:
    """Return the number of the newest version, as Iceberg itself finds it."""
    hint = read_bytes(f"{folder}/{_HINT}")
    if hint is None:
        return max(committed)
    text = hint.decode(errors="replace").strip()
    if not text.isdecimal() or int(text) not in committed:
        raise RefusedError(
            f'{folder}/{_HINT} says "{text}", but there is no v{text}.metadata.json. Correct the '
            "file, or remove it"
        )
    number = int(text)
    # The hint is written after the version, and may lag.
    while number + 1 in committed:
        number += 1
    return number


def _read(location: str, source: str) -> "TableMetadata":
    from pyiceberg.serializers import FromInputFile

    from tableau_pipeline.lake.iceberg_files import LakeIO

    try:
        return FromInputFile.table_metadata(LakeIO().new_input(source))
    except (OSError, ValueError) as error:
        raise RefusedError(f"{named(location)} cannot be read: {error}") from error
