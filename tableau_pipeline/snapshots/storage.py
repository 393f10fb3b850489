"""Where manifests are kept: a few operations on keys, which object stores offer as well.

A key is the path of a file, relative to the folder of all snapshots, with slashes. Spark and hyperd
read and write the files of the rows by themselves.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from tableau_pipeline.hyper.parquet.folders import Folder, LocalFolder

# The name of what a killed `put` may leave.
UNFINISHED = re.compile(r"(.*/)?\.[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A key in a listing; `modified` in seconds since 1970, by the clock of the storage.

    A storage that has folders lists each, below the prefix, as a key that ends in a slash.
    """

    key: str
    modified: float

    @property
    def is_folder(self) -> bool:
        """Whether this is a folder, which has no content of its own."""
        return self.key.endswith("/")


class Storage(Protocol):
    """Contents by key, which are created, read and deleted, but never changed."""

    def put(self, key: str, content: bytes) -> bool:
        """Create a key with its content; return False, and change nothing, if it exists."""

    def read(self, key: str) -> bytes | None:
        """Return the content of a key; None if it does not exist."""

    def list(self, prefix: str) -> Iterator[Entry]:
        """Yield all keys that begin with a prefix, in no particular order."""

    def delete(self, key: str) -> bool:
        """Delete a key; return False if it does not exist, or is a folder that is not empty."""

    def folder(self, key: str) -> Folder:
        """Return the folder with the files whose keys begin with this key and a slash."""


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """Files in a folder of a local disk, or of a network file system."""

    root: Path

    def put(self, key: str, content: bytes) -> bool:
        """Create a file, on the disk once this returns; return False if it exists."""
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{uuid4().hex}")
        try:
            with unfinished.open("xb") as file:
                file.write(content)
                # A power failure must not leave a manifest that has a name and no content.
                file.flush()
                os.fsync(file.fileno())
            try:
                # Unlike a rename, a link fails if the name exists: only one writer wins it.
                os.link(unfinished, path)
            except FileExistsError:
                # A network file system may repeat a call whose answer was lost; then the name is
                # taken by us.
                return unfinished.stat().st_nlink > 1
            return True
        finally:
            unfinished.unlink(missing_ok=True)

    def read(self, key: str) -> bytes | None:
        """Return the content of a file; None if it does not exist."""
        try:
            return (self.root / key).read_bytes()
        except FileNotFoundError:
            return None

    def list(self, prefix: str) -> Iterator[Entry]:
        """Yield all files and folders whose keys begin with a prefix."""
        end = prefix.rfind("/") + 1
        folder, name = prefix[:end], prefix[end:]
        # Others may remove what was just found.
        with suppress(FileNotFoundError, NotADirectoryError):
            for found in [*os.scandir(self.root / folder)]:
                if not found.name.startswith(name):
                    continue
                if found.is_dir(follow_symlinks=False):
                    # Not ours, such as the folder "lost+found" of a disk.
                    with suppress(PermissionError):
                        yield from self.list(f"{folder}{found.name}/")
                else:
                    with suppress(FileNotFoundError):
                        yield Entry(folder + found.name, found.stat().st_mtime)
            if folder and not name:
                yield Entry(folder, (self.root / folder).stat().st_mtime)

    def delete(self, key: str) -> bool:
        """Delete a file or an empty folder; return False if it is not there, or not empty."""
        path = self.root / key
        if key.endswith("/"):
            # It may still contain files, or no longer exist.
            with suppress(OSError):
                path.rmdir()
                return True
            return False
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        return True

    def folder(self, key: str) -> LocalFolder:
        """Return a folder below the root."""
        return LocalFolder(self.root / key)
