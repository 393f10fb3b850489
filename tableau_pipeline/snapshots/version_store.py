"""The versions of models; writing the manifest of a version commits it.

The manifest `<root>/<asset key>/@versions/<number>.json` names the files of a version. Each write
stores its files in a new folder `<root>/<asset key>/@data/<random>/`; they never change.
"""

import gc
import json
import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import random
from urllib.parse import quote, unquote
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, GenericError
from pydantic import ValidationError

from tableau_pipeline.core.snapshot import Part, Snapshot
from tableau_pipeline.errors import DamagedSnapshotError, SettingError
from tableau_pipeline.hyper.parquet import Folder, LocalFolder
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.stores import (
    ObjectFolder,
    StoreError,
    is_url,
    read_object,
    store_at,
    store_errors,
)
from tableau_pipeline.outcome import Code

# The name of a file that a killed `LocalStorage.put` may leave.
UNFINISHED = re.compile(r"(.*/)?\.[0-9a-f]{32}")
# Seconds to wait before a write with an unknown outcome is sent again to an object store.
_PAUSES = (1, 2)


@dataclass(frozen=True, slots=True)
class Entry:
    """A key in a listing; `modified` is in seconds since 1970, according to the storage's clock.

    The listing of a local storage has files and folders; the key of a folder ends in a slash.
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
        """Create a file, and flush it to the disk; return False if the file already exists."""
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
                # Link instead of renaming: a link fails if the name exists, so only one of several
                # writers succeeds.
                os.link(unfinished, path)
            except FileExistsError:
                # A network file system may repeat a call whose answer was lost. In that case, the
                # existing link is ours.
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
        # Ignore missing entries, because another process may remove an entry after the listing.
        with suppress(FileNotFoundError, NotADirectoryError):
            for item in [*os.scandir(self.root / folder)]:
                if not item.name.startswith(name):
                    continue
                if item.is_dir(follow_symlinks=False):
                    # Skip folders that we may not read, such as "lost+found" on a disk.
                    with suppress(PermissionError):
                        yield from self.list(f"{folder}{item.name}/")
                else:
                    with suppress(FileNotFoundError):
                        yield Entry(folder + item.name, item.stat().st_mtime)
            if folder and not name:
                yield Entry(folder, (self.root / folder).stat().st_mtime)

    def delete(self, key: str) -> bool:
        """Delete a file or an empty folder; return False if it does not exist or is not empty."""
        path = self.root / key
        if key.endswith("/"):
            # The folder may still contain files, or no longer exist.
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

    Endpoint and credentials come from the environment variables of the store's own SDKs. All
    operations raise a StoreError if the store refuses them, fails or does not answer.

    Attributes:
        url: the URL, such as "s3://bucket/folder", without a trailing slash.
        copies: the local copies of objects, which hyperd reads.
    """

    url: str
    copies: LocalCopies

    def put(self, key: str, content: bytes) -> bool:
        """Create an object by a conditional write; return False if the object already exists.

        After a StoreError, the object may exist, or the store may still create it.
        """
        with store_errors("Writing", f"{self.url}/{key}"):
            for pause in _PAUSES:
                # After a reset or a timeout, the library does not repeat a write, because the
                # first one may have arrived. Repeat it here: `_create` recognizes its own object.
                try:
                    return self._create(key, content)
                except GenericError:
                    time.sleep(pause)
            return self._create(key, content)

    def read(self, key: str) -> bytes | None:
        """Return the content of an object; None if it does not exist."""
        return read_object(f"{self.url}/{key}")

    def list(self, prefix: str) -> Iterator[Entry]:
        """Yield all objects whose keys begin with a prefix, in no particular order."""
        # Ask for the folder, and compare the rest of the prefix here: an object store lists only by
        # whole parts of a key, up to a slash.
        folder = prefix.rpartition("/")[0]
        with store_errors("Listing", f"{self.url}/{folder}"):
            for chunk in obstore.list(store_at(self.url), folder or None):
                for item in chunk:
                    if item["path"].startswith(prefix):
                        yield Entry(item["path"], item["last_modified"].timestamp())

    def delete(self, key: str) -> bool:
        """Delete an object; return False if it does not exist."""
        url = f"{self.url}/{key}"
        with suppress(FileNotFoundError), store_errors("Deleting", url, may_lack=True):
            obstore.head(store_at(self.url), key)
            obstore.delete(store_at(self.url), key)
            return True
        return False

    def folder(self, key: str) -> ObjectFolder:
        """Return the folder with the objects whose keys begin with this key and a slash."""
        return ObjectFolder(self.url, key, self.copies)

    def _create(self, key: str, content: bytes) -> bool:
        try:
            obstore.put(store_at(self.url), key, content, mode="create")
        except AlreadyExistsError:
            # A repeated write may find the object of its first attempt. Equal content proves that,
            # because two writers never have the same content.
            return self.read(key) == content
        return True


Storage = LocalStorage | ObjectStorage


# Quoting removes every @ from the names of models, so no model can be named "sales/@data".
_VERSIONS, _DATA = "@versions", "@data"
_KEY = re.compile(
    rf"(?P<model>.+?)/({_VERSIONS}/(?P<number>\d+)\.json|(?P<write>{_DATA}/[^/]+)/.*)", re.DOTALL
)


@dataclass(frozen=True)
class SnapshotStore:
    """The versions of all models. A slash separates the parts of an asset key, such as "a/b".

    Attributes:
        root: the path of a local folder, or a storage.
    """

    root: Path | Storage

    @property
    def storage(self) -> Storage:
        """The storage that holds the versions."""
        if isinstance(self.root, Path):
            if is_url(str(self.root), setting="root"):
                raise SettingError(f"{self.root} is a URL, not a path: use an ObjectStorage.")
            # Make the path absolute: in a relative one, Spark takes the first folder for a host.
            return LocalStorage(self.root.resolve())
        return self.root

    def newest(self, asset_key: str) -> Snapshot | None:
        """Return the newest version of a model; None if it has none."""
        while numbers := self.numbers(asset_key):
            # If the version is None, it was replaced and removed meanwhile. Then look again.
            if snapshot := self.version(asset_key, numbers[-1]):
                return snapshot
        return None

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version of a model; None if it was removed.

        Raises:
            DamagedSnapshotError: the manifest cannot be read; the error names it and the remedy.
        """
        if (text := self.storage.read(self.manifest(asset_key, number))) is None:
            return None
        with _without_collector(), self._manifest_errors(asset_key, number):
            manifest = json.loads(text)
            return Snapshot.model_validate({**manifest, "folder": self.folder(asset_key)})

    def numbers(self, asset_key: str) -> list[int]:
        """Return the numbers of all existing versions, in order."""
        keys = self.storage.list(f"{model_key(asset_key)}/{_VERSIONS}/")
        return sorted(parsed[1] for entry in keys if (parsed := parse_key(entry.key)) and parsed[1])

    def commit(self, asset_key: str, make: Callable[[int, Snapshot | None], Snapshot]) -> Snapshot:
        """Store a new version, whose number follows that of the newest one.

        Args:
            make: a function that returns the new version, given its number and the version before
                it (None for the first). It is called again whenever another writer was faster.
        """
        while True:
            before = self.newest(asset_key)
            snapshot = make(before.number + 1 if before else 1, before)
            key = self.manifest(asset_key, snapshot.number)
            if self.storage.put(key, snapshot.manifest().encode()):
                return snapshot
            time.sleep(random() / 50)  # noqa: S311 - so that writers do not retry in step

    def new_folder(self) -> str:
        """Return the path of a new folder for a write, relative to the folder of the model."""
        return f"{_DATA}/{uuid4().hex}"

    def folder(self, asset_key: str) -> Folder:
        """Return the folder with all data of a model."""
        return self.storage.folder(model_key(asset_key))

    def manifest(self, asset_key: str, number: int) -> str:
        """Return the key of the manifest that commits a version."""
        return f"{model_key(asset_key)}/{_VERSIONS}/{number:09}.json"

    def files(self, asset_key: str, numbers: Iterable[int] | None = None) -> set[str]:
        """Return the names of all files of the given versions, by default of all versions."""
        names: set[str] = set()
        for number in self.numbers(asset_key) if numbers is None else numbers:
            if (text := self.storage.read(self.manifest(asset_key, number))) is not None:
                with self._manifest_errors(asset_key, number):
                    parts = json.loads(text)["parts"]
                    names.update(file["name"] for part in parts for file in part["files"])
        return names

    def remove(self, snapshot: Snapshot) -> None:
        """Remove a version, to which the caller knows no reference, and the files that it wrote."""
        key, number = snapshot.asset_key, snapshot.number
        # Delete the manifest first, so that an interruption leaves no version that lacks files.
        self.storage.delete(self.manifest(key, number))
        own_parts = [part for part in snapshot.parts if part.version == number]
        for folder in {file.name.rpartition("/")[0] for part in own_parts for file in part.files}:
            self.discard(key, "/".join(folder.split("/")[:2]))

    def discard(self, asset_key: str, folder: str) -> None:
        """Remove the folder of a write with its files; ignore files that cannot be removed."""
        prefix = f"{model_key(asset_key)}/{folder}/"
        # The retention of snapshots will remove the files that cannot be removed now.
        with suppress(OSError, StoreError):
            # Reverse order deletes the content of a folder before the folder.
            for key in sorted((entry.key for entry in self.storage.list(prefix)), reverse=True):
                self.storage.delete(key)

    @contextmanager
    def _manifest_errors(self, asset_key: str, number: int) -> Generator[None]:
        """Turn an error about a manifest into one that names the file and the remedy.

        Raises:
            DamagedSnapshotError: the content of the manifest is not valid.
        """
        try:
            yield
        except (ValueError, TypeError, KeyError) as error:
            details = error.errors()[0] if isinstance(error, ValidationError) else None
            cause = f"{'.'.join(map(str, details['loc']))}: {details['msg']}" if details else error
            name = self.manifest(asset_key, number).removeprefix(f"{model_key(asset_key)}/")
            raise DamagedSnapshotError(
                f'Version {number} of the model "{asset_key}" cannot be read: '
                f"{self.folder(asset_key).full_name(name)} is damaged, or a newer release wrote it "
                f"({cause}). Restore the file from a backup, or install that release. Or remove "
                "the file, and materialize the model again before its data sources are refreshed.",
                code=Code.SNAPSHOT,
            ) from error


@contextmanager
def _without_collector() -> Generator[None]:
    """Pause the garbage collector, because reading a manifest leaves nothing to collect.

    With many partitions, repeated collections took longer than reading the manifest.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def model_key(asset_key: str) -> str:
    """Return the key of the folder with all data of a model."""
    # The quoting is reversible, and never results in a folder named "." or "..".
    quoted = [quote(part, safe="") for part in asset_key.split("/")]
    return "/".join(part.replace(".", "%2E") if part in (".", "..") else part for part in quoted)


def parse_key(key: str) -> tuple[str, int | None, str] | None:
    """Return the model of a key, the number of its version, and the folder of its write.

    For the key of a manifest, the folder is "". For a key of a data file, the number is None, and
    the third value is the path of the folder of the write, relative to the folder of the model. For
    any other key, return None.
    """
    if (match := _KEY.fullmatch(key)) is None:
        return None
    number = match["number"]
    return unquote(match["model"]), int(number) if number else None, match["write"] or ""


def merged_parts(
    before: Snapshot | None,
    written: Sequence[Part],
    *,
    columns: tuple[Column, ...],
    keeps: Callable[[Part], bool],
) -> tuple[Part, ...]:
    """Return the parts of the next version: the parts just written, and earlier parts that remain.

    A model is stored either whole or in partitions. When it changes from one to the other, the
    write replaces all earlier parts.

    Args:
        columns: the columns of the write.
        keeps: a function that tells whether an earlier partition still belongs to the model.
    """
    parts = {part.partition: part for part in written}
    if before and None not in parts:
        for part in before.parts:
            if part.partition is not None and part.partition not in parts and keeps(part):
                # A part has columns of its own only if they differ from the columns of the version.
                own = part.columns or before.columns
                own = None if own == columns else own
                is_same = part.columns == own
                parts[part.partition] = (
                    part if is_same else part.model_copy(update={"columns": own})
                )
    return tuple(sorted(parts.values(), key=lambda part: part.partition or ""))
