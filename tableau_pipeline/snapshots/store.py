"""Store the versions of models, each committed by its manifest.

`<root>/<asset key>/@versions/<number>.json` names the files of a version. They are in
`<root>/<asset key>/@data/<random>/`, one folder for each write, and never change.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import random
from urllib.parse import quote, unquote
from uuid import uuid4

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.snapshots import former

# Quoting removes every @ from model names, so "sales/@data" cannot be a folder of "sales".
VERSIONS, DATA = "@versions", "@data"
_MANIFEST = re.compile(r"\d+\.json")


@dataclass(frozen=True)
class SnapshotStore:
    """The versions of all models in a folder; "a/b" is a key of two parts."""

    root: Path

    def newest(self, asset_key: str) -> Snapshot | None:
        """Return the newest version of a model; None if it has none."""
        while numbers := self.numbers(asset_key):
            # It was replaced and removed meanwhile, so a newer one exists.
            if found := self.version(asset_key, numbers[-1]):
                return found
        return former.read(self.folder(asset_key), asset_key)

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version of a model; None if it was removed."""
        try:
            text = self.manifest(asset_key, number).read_text(encoding="utf-8")
        except FileNotFoundError:
            if number == former.NUMBER and not self.numbers(asset_key):
                return former.read(self.folder(asset_key), asset_key)
            return None
        return Snapshot.model_validate({**json.loads(text), "folder": self.folder(asset_key)})

    def numbers(self, asset_key: str) -> list[int]:
        """Return the numbers of all existing versions that were committed here, in order."""
        try:
            names = [path.name for path in (self.folder(asset_key) / VERSIONS).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(Path(name).stem) for name in names if _MANIFEST.fullmatch(name))

    def commit(self, asset_key: str, make: Callable[[int, Snapshot | None], Snapshot]) -> Snapshot:
        """Store a version after all others.

        Args:
            make: returns the version, given its number and the version before it, None for the
                first. It is called again whenever another writer was faster. If only an older
                release has stored the model, the version before is number 0.
        """
        while True:
            before = self.newest(asset_key)
            if before and before.number == former.NUMBER:
                # Now it is a regular version, which no longer depends on the layout of older
                # releases.
                self._create(before)
            snapshot = make(before.number + 1 if before else 1, before)
            if self._create(snapshot):
                return snapshot
            time.sleep(random() / 50)  # noqa: S311 - so that writers do not retry in step

    def adopt(self, asset_key: str) -> None:
        """Make what only an older release has stored a regular version."""
        if not self.numbers(asset_key) and (found := self.newest(asset_key)):
            self._create(found)

    def new_folder(self, asset_key: str) -> Path:
        """Return the path of a new folder for the files of a write, with a random name."""
        return self.folder(asset_key) / DATA / uuid4().hex

    def folder(self, asset_key: str) -> Path:
        """Return the folder with all data of a model."""
        # Spark treats the first folder of a relative path as a host name.
        return self.root.resolve().joinpath(*map(_quoted, asset_key.split("/")))

    def manifest(self, asset_key: str, number: int) -> Path:
        """Return the path of the file that commits a version."""
        return self.folder(asset_key) / VERSIONS / f"{number:09}.json"

    def files(self, asset_key: str) -> set[str]:
        """Return the names of the files of all existing versions."""
        found: set[str] = set()
        for number in self.numbers(asset_key):
            try:
                manifest = json.loads(self.manifest(asset_key, number).read_text(encoding="utf-8"))
            except FileNotFoundError:
                continue
            found.update(file["name"] for part in manifest["parts"] for file in part["files"])
        return found

    def models(self) -> Iterator[str]:
        """Yield the asset keys of all models that were ever written."""
        root = self.root.resolve()
        for folder, names, _ in os.walk(root):
            if {VERSIONS, DATA}.intersection(names) or any(map(former.is_write, names)):
                yield "/".join(map(unquote, Path(folder).relative_to(root).parts))
            # A model may lie inside another one's folder, but never among its versions or files.
            names[:] = [
                name for name in names if name not in (VERSIONS, DATA) and not former.is_write(name)
            ]

    def _create(self, snapshot: Snapshot) -> bool:
        """Write a manifest without overwriting one; return False if its number is taken."""
        manifest = self.manifest(snapshot.asset_key, snapshot.number)
        manifest.parent.mkdir(parents=True, exist_ok=True)
        unfinished = manifest.with_name(f".{uuid4().hex}")
        try:
            with unfinished.open("x", encoding="utf-8") as file:
                file.write(snapshot.manifest())
                # A power failure must not leave a manifest that has a name and no content.
                file.flush()
                os.fsync(file.fileno())
            try:
                # Unlike a rename, a link fails if the name exists: only one writer wins a number.
                os.link(unfinished, manifest)
            except FileExistsError:
                # A network file system may repeat a call whose answer was lost; then the number is
                # taken by us.
                return unfinished.stat().st_nlink > 1
            return True
        finally:
            unfinished.unlink(missing_ok=True)


@dataclass(frozen=True)
class TrialStore(SnapshotStore):
    """Reads the versions of a store, but keeps nothing that is written after `close`."""

    folders: list[Path] = field(default_factory=list)

    def commit(self, asset_key: str, make: Callable[[int, Snapshot | None], Snapshot]) -> Snapshot:
        """Return the version that would be stored."""
        before = self.newest(asset_key)
        return make(before.number + 1 if before else 1, before)

    def new_folder(self, asset_key: str) -> Path:
        """Return the path of a temporary folder."""
        self.folders.append(super().new_folder(asset_key))
        return self.folders[-1]

    def close(self) -> None:
        """Remove everything that was written."""
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


def spark_path(path: Path) -> str:
    """Return a path in the form that Spark expects: with its scheme, and without escapes."""
    return f"file://{path}"


def _quoted(part: str) -> str:
    """Encode a part of an asset key as a folder name, reversibly."""
    return part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="")
