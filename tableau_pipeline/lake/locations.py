"""Where a table of a lake is: a folder of a disk, or a URL of an object store."""

import re
from pathlib import Path

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.parquet.folders import Folder, LocalFolder
from tableau_pipeline.objects.local_copies import LocalCopies
from tableau_pipeline.objects.object_folder import ObjectFolder
from tableau_pipeline.objects.opening import bucket_and_key, canonical, is_url
from tableau_pipeline.objects.read_objects import list_folder, read_object

# Some writers write the path of a file on a disk as a URL.
_FILE = re.compile("^file:(//)?")


def in_store(location: str, *, of: str = "source") -> bool:
    """Whether a table is in an object store, and not on a disk.

    Args:
        of: what the location is the value of.

    Raises:
        RefusedError: it is at a URL of something else, or holds more than bucket and folder.
    """
    return is_url(location, setting=of)


def folder_at(location: str, copies: LocalCopies) -> Folder:
    """Return the files of the table at a path or URL.

    Args:
        copies: the local copies of the files of an object store.
    """
    if in_store(location):
        return ObjectFolder(*bucket_and_key(location), copies)
    return LocalFolder(Path(location))


def names_in(location: str) -> list[str]:
    """Return the names of the files in a folder, without those of folders in it."""
    if in_store(location):
        return list(list_folder(location))
    return [path.name for path in Path(location).glob("*")]


def read_bytes(location: str) -> bytes | None:
    """Return the content of a file; None if it does not exist."""
    if in_store(location):
        return read_object(location)
    path = Path(location)
    return path.read_bytes() if path.exists() else None


def plain(logged: str) -> str:
    """Return the path or the URL that a table has recorded as we write it."""
    return canonical(_FILE.sub("", logged)).rstrip("/")


def file_name(logged: str, location: str, *, table: str) -> str:
    """Return the name of a file below its table.

    Args:
        logged: a name, a path or a URL, without escapes.
        location: of the table.
        table: names the table in the message.

    Raises:
        RefusedError: the file is elsewhere.
    """
    file = plain(logged).removeprefix(f"{location}/")
    if file.startswith("/") or "://" in file or ".." in file.split("/"):
        raise RefusedError(
            f"{table} has files elsewhere, such as {logged}. Only files below {location} are read: "
            "copy the table, or publish it through a Spark model"
        )
    return file
