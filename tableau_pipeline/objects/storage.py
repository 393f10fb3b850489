"""Store contents under keys, in a folder of a disk or in an object store."""

import errno
import os
import re
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, GenericError

from tableau_pipeline.errors import SettingError
from tableau_pipeline.hyper.parquet import LocalFolder
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.stores import (
    ObjectFolder,
    StoreError,
    read_object,
    store_at,
    store_errors,
)

# The names of files that a killed call of `LocalStorage.put` or `LocalStorage.replace` may leave.
UNFINISHED = re.compile(r"(.*/)?\.[0-9a-f]{32}")
# The errors of `os.link` on a file system without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
# The seconds to wait before repeating a write to an object store if its outcome is unknown.
_PAUSES = (1, 2)


@dataclass(frozen=True, slots=True)
class Entry:
    """A key in a listing; `modified` is in seconds since 1970, by the clock of the storage.

    The listing of a local storage contains files and folders; keys of folders end in a slash.
    """

    key: str
    modified: float

    @property
    def is_folder(self) -> bool:
        """Whether this is the key of a folder, which has no content."""
        return self.key.endswith("/")


@dataclass(frozen=True, slots=True)
class LocalStorage:
    """Files in a folder of a local disk, or of a network file system."""

    root: Path

    def put(self, key: str, content: bytes) -> bool:
        """Create a file and flush it to the disk; return False if the file already exists."""
        path = self.root / key
        with _unfinished(path) as unfinished:
            with unfinished.open("xb") as file:
                file.write(content)
                # Flush the content before the file gets its name, so that a power failure cannot
                # leave an empty file under this name.
                file.flush()
                os.fsync(file.fileno())
            try:
                # Link instead of renaming: a link fails if the name exists, so only one writer
                # succeeds.
                os.link(unfinished, path)
            except FileExistsError:
                # A network file system may repeat a call if its answer was lost. In that case, the
                # existing link is ours.
                return unfinished.stat().st_nlink > 1
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                raise SettingError(
                    f"The disk of {path.parent} has no hard links, so two refreshes could not tell "
                    "which of them came first. Let PIPELINE_DATA_DIR name a folder of another disk "
                    "or network file system, or the URL of an object store"
                ) from error
            _flush(path.parent)
        return True

    def replace(self, key: str, content: bytes) -> None:
        """Create or replace a file; readers see either the old or the new content."""
        path = self.root / key
        with _unfinished(path) as unfinished:
            unfinished.write_bytes(content)
            unfinished.replace(path)

    def read(self, key: str) -> bytes | None:
        """Return the content of a file; None if the file does not exist."""
        try:
            return (self.root / key).read_bytes()
        except FileNotFoundError:
            return None

    def list(self, prefix: str) -> Iterator[Entry]:
        """Yield all files and folders whose keys begin with a prefix, in no particular order."""
        end = prefix.rfind("/") + 1
        folder, name = prefix[:end], prefix[end:]
        # Ignore missing entries, because another process may remove an entry after the listing.
        with suppress(FileNotFoundError, NotADirectoryError):
            for item in [*os.scandir(self.root / folder)]:
                if not item.name.startswith(name):
                    continue
                if item.is_dir(follow_symlinks=False):
                    # Skip folders that this user may not read, such as "lost+found" on a disk.
                    with suppress(PermissionError):
                        yield from self.list(f"{folder}{item.name}/")
                else:
                    with suppress(FileNotFoundError):
                        yield Entry(folder + item.name, item.stat().st_mtime)
            if folder and not name:
                yield Entry(folder, (self.root / folder).stat().st_mtime)

    def folders(self, key: str) -> Iterator[str]:
        """Yield the names of the folders in a folder, without listing their contents."""
        with suppress(FileNotFoundError, NotADirectoryError):
            for item in [*os.scandir(self.root / key)]:
                if item.is_dir(follow_symlinks=False):
                    yield item.name

    def delete(self, key: str) -> bool:
        """Delete a file or an empty folder; return whether this call deleted it."""
        path = self.root / key
        if key.endswith("/"):
            # Ignore errors: the folder may still contain files, or no longer exist.
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
        """Return the folder of all files whose keys begin with this key and a slash."""
        return LocalFolder(self.root / key)


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """The objects in an object store below a URL.

    The environment variables of the store's own SDK provide the endpoint and the credentials. All
    methods raise a StoreError if the store refuses a request, fails or does not answer.

    Attributes:
        url: the URL, such as "s3://bucket/folder", without a trailing slash.
        copies: the local copies of objects, for hyperd to read.
    """

    url: str
    copies: LocalCopies

    def put(self, key: str, content: bytes) -> bool:
        """Create an object by a conditional write; return False if the object already exists.

        After a StoreError, the object may exist, or the store may create it later.
        """
        with store_errors("Writing", f"{self.url}/{key}"):
            for pause in _PAUSES:
                # obstore does not repeat a write after a reset or a timeout, because the first
                # attempt may have arrived. Repeat the write here: `_create` recognizes its own
                # object.
                try:
                    return self._create(key, content)
                except GenericError:
                    time.sleep(pause)
            return self._create(key, content)

    def replace(self, key: str, content: bytes) -> None:
        """Create or replace an object."""
        with store_errors("Writing", f"{self.url}/{key}"):
            obstore.put(store_at(self.url), key, content)

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None if the object does not exist."""
        return read_object(f"{self.url}/{key}")

    def list(self, prefix: str) -> Iterator[Entry]:
        """Yield all objects whose keys begin with a prefix, in no particular order."""
        # List the folder, and compare the rest of the prefix here. An object store lists only by
        # whole parts of a key, up to a slash.
        folder = prefix.rpartition("/")[0]
        with store_errors("Listing", f"{self.url}/{folder}"):
            for chunk in obstore.list(store_at(self.url), folder or None):
                for item in chunk:
                    if item["path"].startswith(prefix):
                        yield Entry(item["path"], item["last_modified"].timestamp())

    def folders(self, key: str) -> Iterator[str]:
        """Yield the names of the folders in a folder, without listing their contents."""
        with store_errors("Listing", f"{self.url}/{key}"):
            found = obstore.list_with_delimiter(store_at(self.url), key)["common_prefixes"]
        for folder in found:
            yield folder.rstrip("/").rpartition("/")[2]

    def delete(self, key: str) -> bool:
        """Delete an object; return False if the object does not exist."""
        url = f"{self.url}/{key}"
        with suppress(FileNotFoundError), store_errors("Deleting", url, may_lack=True):
            obstore.head(store_at(self.url), key)
            obstore.delete(store_at(self.url), key)
            return True
        return False

    def folder(self, key: str) -> ObjectFolder:
        """Return the folder of all objects whose keys begin with this key and a slash."""
        return ObjectFolder(self.url, key, self.copies)

    def _create(self, key: str, content: bytes) -> bool:
        try:
            obstore.put(store_at(self.url), key, content, mode="create")
        except AlreadyExistsError:
            # A repeated write may find the object of its first attempt. Equal content proves that
            # the object is ours, because two writers never have the same content.
            return self.read(key) == content
        return True


Storage = LocalStorage | ObjectStorage


@contextmanager
def _unfinished(path: Path) -> Generator[Path]:
    """Yield a new path in the folder of a file; after the block, remove a file left at this path.

    Raises:
        StoreError: this user may not write to the folder.
    """
    unfinished = path.with_name(f".{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
    except PermissionError as error:
        raise StoreError(
            f"Writing {path} failed: {error.strerror}. Let this user write in the data folder"
        ) from error
    finally:
        with suppress(PermissionError):
            unfinished.unlink(missing_ok=True)


def _flush(folder: Path) -> None:
    """Flush a folder to the disk, so that the name of a new file survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
