"""Where snapshots are kept: contents by key, which are created, read and deleted, never changed.

A key is the path of a file, relative to the folder of all snapshots, with slashes. Spark and hyperd
read and write the files of the rows by themselves.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, GenericError

from tableau_pipeline.hyper.tables import LocalFolder
from tableau_pipeline.objects.errors import is_absent
from tableau_pipeline.objects.local import LocalCopies
from tableau_pipeline.objects.stores import ObjectFolder, opened, store_errors

# The name of what a killed `LocalStorage.put` may leave.
UNFINISHED = re.compile(r"(.*/)?\.[0-9a-f]{32}")
# Seconds before a write to an object store is sent again whose outcome is not known.
_PAUSES = (1, 2)


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
        """Yield all files and folders whose keys begin with a prefix, in no particular order."""
        end = prefix.rfind("/") + 1
        folder, name = prefix[:end], prefix[end:]
        # Another process may remove what was just found.
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
        """Return the folder with the files whose keys begin with this key and a slash."""
        return LocalFolder(self.root / key)


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """The objects below a URL.

    Endpoint and credentials come from the environment, by the variables of the store's own SDKs.
    All operations raise a StoreError if the store refuses them, fails or does not answer.

    Attributes:
        url: such as "s3://bucket/folder", without a trailing slash.
        copies: where copies are kept for hyperd.
    """

    url: str
    copies: LocalCopies

    def put(self, key: str, content: bytes) -> bool:
        """Create an object by a conditional write; return False if it exists.

        After a StoreError, it may have been created, or may still be.
        """
        with store_errors("Writing", f"{self.url}/{key}"):
            for pause in _PAUSES:
                # After a reset or a timeout, the library does not send it again, as it may have
                # arrived. Sent again, it fails if it has, and so its outcome is known.
                try:
                    return self._created(key, content)
                except GenericError:
                    time.sleep(pause)
            return self._created(key, content)

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None if it does not exist."""
        with store_errors("Reading", f"{self.url}/{key}"):
            try:
                return bytes(obstore.get(opened(self.url), key).bytes())
            except FileNotFoundError as error:
                if is_absent(error):
                    return None
                raise

    def list(self, prefix: str) -> Iterator[Entry]:
        """Yield all objects whose keys begin with a prefix, in no particular order."""
        # Object stores compare whole parts of a key, up to the next slash.
        folder = prefix.rpartition("/")[0]
        with store_errors("Listing", f"{self.url}/{folder}"):
            for chunk in obstore.list(opened(self.url), folder or None):
                for found in chunk:
                    if found["path"].startswith(prefix):
                        yield Entry(found["path"], found["last_modified"].timestamp())

    def delete(self, key: str) -> bool:
        """Delete an object; return False if it does not exist."""
        with store_errors("Deleting", f"{self.url}/{key}"):
            try:
                obstore.head(opened(self.url), key)
                obstore.delete(opened(self.url), key)
            except FileNotFoundError as error:
                if is_absent(error):
                    return False
                raise
        return True

    def folder(self, key: str) -> ObjectFolder:
        """Return the folder with the objects whose keys begin with this key and a slash."""
        return ObjectFolder(self.url, key, self.copies)

    def _created(self, key: str, content: bytes) -> bool:
        try:
            obstore.put(opened(self.url), key, content, mode="create")
        except AlreadyExistsError:
            # A write that was sent again finds what it has written itself. No two writers have the
            # same content.
            return self.read(key) == content
        return True


Storage = LocalStorage | ObjectStorage
