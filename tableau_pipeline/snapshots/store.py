"""Store the versions of models, each committed by its manifest.

`<root>/<asset key>/@versions/<number>.json` names the files of a version. They are in
`<root>/<asset key>/@data/<random>/`, one folder for each write, and never change.
"""

import gc
import json
import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import random
from typing import Protocol
from urllib.parse import quote, unquote
from uuid import uuid4

from pydantic import ValidationError

from tableau_pipeline.core.snapshot import Part, Snapshot
from tableau_pipeline.errors import DamagedSnapshotError, RefusedError
from tableau_pipeline.hyper.tables import Column, Folder, LocalFolder
from tableau_pipeline.objects.stores import StoreError, is_url

# Where manifests are kept: a few operations on keys, which object stores offer as well.
#
# A key is the path of a file, relative to the folder of all snapshots, with slashes. Spark and
# hyperd read and write the files of the rows by themselves.


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


# Quoting removes every @ from model names, so "sales/@data" cannot be a folder of "sales".
VERSIONS, DATA = "@versions", "@data"
_MANIFEST = re.compile(rf".+/{VERSIONS}/(\d+)\.json")
_PLACE = re.compile(rf"(?P<model>.+?)/({VERSIONS}|(?P<write>{DATA}/[^/]+))/")


@dataclass(frozen=True)
class SnapshotStore:
    """The versions of all models; "a/b" is a key of two parts.

    Attributes:
        root: a folder, or another storage.
    """

    root: Path | Storage

    @property
    def storage(self) -> Storage:
        """Where the versions are."""
        if isinstance(self.root, Path):
            if is_url(str(self.root), setting="root"):
                raise RefusedError(f"{self.root} is a URL, not a path: use an ObjectStorage.")
            # Spark treats the first folder of a relative path as a host name.
            return LocalStorage(self.root.resolve())
        return self.root

    def newest(self, asset_key: str) -> Snapshot | None:
        """Return the newest version of a model; None if it has none."""
        while numbers := self.numbers(asset_key):
            # It was replaced and removed meanwhile, so a newer one exists.
            if found := self.version(asset_key, numbers[-1]):
                return found
        return None

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version of a model; None if it was removed.

        Raises:
            DamagedSnapshotError: its manifest cannot be read; names it, and the remedy.
        """
        if (text := self.storage.read(self.manifest(asset_key, number))) is None:
            return None
        with _no_garbage(), self._understood(asset_key, number):
            manifest = json.loads(text)
            return Snapshot.model_validate({**manifest, "folder": self.folder(asset_key)})

    def numbers(self, asset_key: str) -> list[int]:
        """Return the numbers of all existing versions, in order."""
        prefix = f"{model_key(asset_key)}/{VERSIONS}/"
        found = (number_of(entry.key) for entry in self.storage.list(prefix))
        return sorted(filter(None, found))

    def commit(self, asset_key: str, make: Callable[[int, Snapshot | None], Snapshot]) -> Snapshot:
        """Store a version after all others.

        Args:
            make: returns the version, given its number and the version before it, None for the
                first. It is called again whenever another writer was faster.
        """
        while True:
            before = self.newest(asset_key)
            snapshot = make(before.number + 1 if before else 1, before)
            if self._create(snapshot):
                return snapshot
            time.sleep(random() / 50)  # noqa: S311 - so that writers do not retry in step

    def new_folder(self, asset_key: str) -> str:
        """Return a new folder for the files of a write: its path below the folder of the model."""
        return f"{DATA}/{uuid4().hex}"

    def folder(self, asset_key: str) -> Folder:
        """Return the folder with all data of a model."""
        return self.storage.folder(model_key(asset_key))

    def manifest(self, asset_key: str, number: int) -> str:
        """Return the key of the manifest that commits a version."""
        return f"{model_key(asset_key)}/{VERSIONS}/{number:09}.json"

    def files(self, asset_key: str, numbers: Iterable[int] | None = None) -> set[str]:
        """Return the names of the files of these versions; by default of all existing ones.

        Raises:
            DamagedSnapshotError: as `version`.
        """
        found: set[str] = set()
        for number in self.numbers(asset_key) if numbers is None else numbers:
            if (text := self.storage.read(self.manifest(asset_key, number))) is not None:
                with self._understood(asset_key, number):
                    parts = json.loads(text)["parts"]
                    found.update(file["name"] for part in parts for file in part["files"])
        return found

    def discard(self, asset_key: str, folder: str) -> None:
        """Remove a folder for the files of a write."""
        prefix = f"{model_key(asset_key)}/{folder}/"
        # What cannot be removed now, the retention of snapshots removes.
        with suppress(OSError, StoreError):
            # In this order, what is in a folder comes before the folder.
            for key in sorted((entry.key for entry in self.storage.list(prefix)), reverse=True):
                self.storage.delete(key)

    @contextmanager
    def _understood(self, asset_key: str, number: int) -> Generator[None]:
        """Name the manifest in what is wrong with it, and say what to do."""
        try:
            yield
        except (ValueError, TypeError, KeyError) as error:
            found = error.errors()[0] if isinstance(error, ValidationError) else None
            what = f"{'.'.join(map(str, found['loc']))}: {found['msg']}" if found else error
            name = self.manifest(asset_key, number).removeprefix(f"{model_key(asset_key)}/")
            raise DamagedSnapshotError(
                f'Version {number} of the model "{asset_key}" cannot be read: '
                f"{self.folder(asset_key).full_name(name)} is damaged, or a newer release wrote it "
                f"({what}). Restore the file from a backup, or install that release. Or remove "
                "the file, and materialize the model again before its data sources are refreshed."
            ) from error

    def _create(self, snapshot: Snapshot) -> bool:
        """Store a manifest; return False if its number is taken."""
        key = self.manifest(snapshot.asset_key, snapshot.number)
        return self.storage.put(key, snapshot.manifest().encode())


@dataclass(frozen=True)
class TrialStore(SnapshotStore):
    """Reads the versions of a store, but keeps nothing that is written after `close`."""

    folders: list[tuple[str, str]] = field(default_factory=list)

    def commit(self, asset_key: str, make: Callable[[int, Snapshot | None], Snapshot]) -> Snapshot:
        """Return the version that would be stored."""
        before = self.newest(asset_key)
        return make(before.number + 1 if before else 1, before)

    def new_folder(self, asset_key: str) -> str:
        """Return a temporary folder."""
        folder = super().new_folder(asset_key)
        self.folders.append((asset_key, folder))
        return folder

    def close(self) -> None:
        """Remove everything that was written."""
        for asset_key, folder in self.folders:
            self.discard(asset_key, folder)


@contextmanager
def _no_garbage() -> Generator[None]:
    """Pause the garbage collector; a manifest of many partitions has nothing to collect."""
    # Looking through all values again and again took longer than to make them.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def model_key(asset_key: str) -> str:
    """Return the key of the folder with all data of a model."""
    # Reversible; "." and ".." must not be folders either.
    quoted = [quote(part, safe="") for part in asset_key.split("/")]
    return "/".join(part.replace(".", "%2E") if part in (".", "..") else part for part in quoted)


def place(key: str) -> tuple[str, str] | None:
    """Return the model of a key and the folder of its write; None for a key of something else.

    The folder is relative to that of the model; "" for a manifest.
    """
    found = _PLACE.match(key)
    return (unquote(found["model"]), found["write"] or "") if found else None


def number_of(key: str) -> int | None:
    """Return the number of the version that a key commits; None for a key of something else."""
    found = _MANIFEST.fullmatch(key)
    return int(found[1]) if found else None


# Derive the parts of the next version of a model.


def succeeding(
    before: Snapshot | None,
    written: Sequence[Part],
    *,
    columns: tuple[Column, ...],
    keeps: Callable[[Part], bool],
) -> tuple[Part, ...]:
    """Return the parts of the next version: those just written, and the earlier ones that stay.

    A model is stored either whole or by partitions: a write of one kind replaces all parts of the
    other.

    Args:
        columns: the columns of the write.
        keeps: whether an earlier partition still belongs to the model.
    """
    if before is None or any(part.partition is None for part in written):
        return in_order(written)
    again = {part.partition for part in written}
    stay = [
        part
        for part in before.parts
        if part.partition is not None and part.partition not in again and keeps(part)
    ]
    return in_order([*_in_columns(stay, before, columns), *written])


def in_order(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Sort parts by their keys."""
    return tuple(sorted(parts, key=lambda part: part.partition or ""))


def _in_columns(
    parts: Iterable[Part], before: Snapshot, columns: tuple[Column, ...]
) -> Iterable[Part]:
    """Set the columns of a part only where they differ from those of the version."""
    for part in parts:
        own = part.columns or before.columns
        own = None if own == columns else own
        yield part if part.columns == own else part.model_copy(update={"columns": own})
