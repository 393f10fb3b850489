"""Store the versions of models, each committed by its manifest.

`<root>/<asset key>/@versions/<number>.json` names the files of a version. They are in
`<root>/<asset key>/@data/<random>/`, one folder for each write, and never change.
"""

import gc
import json
import re
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import random
from urllib.parse import quote, unquote
from uuid import uuid4

from pydantic import ValidationError

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.errors import DamagedSnapshotError, RefusedError
from tableau_pipeline.hyper.parquet.folders import Folder
from tableau_pipeline.objects.opening import StoreError, is_url
from tableau_pipeline.snapshots.storage import LocalStorage, Storage

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
