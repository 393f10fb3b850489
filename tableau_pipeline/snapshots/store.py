"""Where the versions of models lie, each committed by its manifest.

`<root>/<asset key>/@versions/<number>.json` names the files of a version; they lie in
`<root>/<asset key>/@data/<random>/`, a folder for each write, and are never written again.
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

# Quoting leaves no @ in the name of a model, so that "sales/@data" is no folder of "sales".
VERSIONS, DATA = "@versions", "@data"
_MANIFEST = re.compile(r"\d+\.json")


@dataclass(frozen=True)
class SnapshotStore:
    """The versions of all models below a folder; "a/b" is the key of a model of two parts."""

    root: Path

    def newest(self, asset_key: str) -> Snapshot | None:
        """The newest version of a model; None if it has none."""
        while numbers := self.numbers(asset_key):
            # Gone: it was replaced and collected since, and a newer one is there.
            if found := self.version(asset_key, numbers[-1]):
                return found
        return former.read(self.folder(asset_key), asset_key)

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """A version of a model; None if it is gone."""
        try:
            text = self.manifest(asset_key, number).read_text(encoding="utf-8")
        except FileNotFoundError:
            if number == former.NUMBER and not self.numbers(asset_key):
                return former.read(self.folder(asset_key), asset_key)
            return None
        return Snapshot.model_validate({**json.loads(text), "folder": self.folder(asset_key)})

    def numbers(self, asset_key: str) -> list[int]:
        """The numbers of all versions that were committed here and are not gone; in order."""
        try:
            names = [path.name for path in (self.folder(asset_key) / VERSIONS).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(Path(name).stem) for name in names if _MANIFEST.fullmatch(name))

    def commit(self, asset_key: str, make: Callable[[int, Snapshot | None], Snapshot]) -> Snapshot:
        """Store a version after all others.

        Args:
            make: the version by its number and the one before it, None before the first; asked
                again whenever another writer was faster. Of a model that only an older release has
                stored, the one before is number 0.
        """
        while True:
            before = self.newest(asset_key)
            if before and before.number == former.NUMBER:
                # From now on it is a version like any other, whatever becomes of its old folders.
                self._create(before)
            snapshot = make(before.number + 1 if before else 1, before)
            if self._create(snapshot):
                return snapshot
            time.sleep(random() / 50)  # noqa: S311 - so that writers do not go in step

    def adopt(self, asset_key: str) -> None:
        """Make a version like any other of what only an older release has stored."""
        if not self.numbers(asset_key) and (found := self.newest(asset_key)):
            self._create(found)

    def new_folder(self, asset_key: str) -> Path:
        """The name of a folder for the files of a write; like no other, and in no order."""
        return self.folder(asset_key) / DATA / uuid4().hex

    def folder(self, asset_key: str) -> Path:
        """Where all of a model lies."""
        # Spark takes the first folder of a relative path for the name of a host.
        return self.root.resolve().joinpath(*map(_quoted, asset_key.split("/")))

    def manifest(self, asset_key: str, number: int) -> Path:
        """The file that commits a version."""
        return self.folder(asset_key) / VERSIONS / f"{number:09}.json"

    def files(self, asset_key: str) -> set[str]:
        """The names of the files of all versions that there are."""
        found: set[str] = set()
        for number in self.numbers(asset_key):
            try:
                manifest = json.loads(self.manifest(asset_key, number).read_text(encoding="utf-8"))
            except FileNotFoundError:
                continue
            found.update(file["name"] for part in manifest["parts"] for file in part["files"])
        return found

    def models(self) -> Iterator[str]:
        """The asset keys of all models of which anything was ever written."""
        root = self.root.resolve()
        for folder, names, _ in os.walk(root):
            if {VERSIONS, DATA}.intersection(names) or any(map(former.is_write, names)):
                yield "/".join(map(unquote, Path(folder).relative_to(root).parts))
            names[:] = [
                name for name in names if name not in (VERSIONS, DATA) and not former.is_write(name)
            ]

    def _create(self, snapshot: Snapshot) -> bool:
        """Write a manifest that nobody overwrites; False if its number is taken."""
        manifest = self.manifest(snapshot.asset_key, snapshot.number)
        manifest.parent.mkdir(parents=True, exist_ok=True)
        unfinished = manifest.with_name(f".{uuid4().hex}")
        try:
            with unfinished.open("x", encoding="utf-8") as file:
                file.write(snapshot.manifest())
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(unfinished, manifest)
            except FileExistsError:
                # A network's file system may repeat a call whose answer was lost: taken, by us.
                return unfinished.stat().st_nlink > 1
            return True
        finally:
            unfinished.unlink(missing_ok=True)


@dataclass(frozen=True)
class TrialStore(SnapshotStore):
    """Reads what a store has, and keeps nothing of what is written: it goes with `close`."""

    folders: list[Path] = field(default_factory=list)

    def commit(self, asset_key: str, make: Callable[[int, Snapshot | None], Snapshot]) -> Snapshot:
        """The version that would be stored."""
        before = self.newest(asset_key)
        return make(before.number + 1 if before else 1, before)

    def new_folder(self, asset_key: str) -> Path:
        """The name of a folder that will go."""
        self.folders.append(super().new_folder(asset_key))
        return self.folders[-1]

    def close(self) -> None:
        """Remove what was written."""
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


def spark_path(path: Path) -> str:
    """A path as Spark wants it: with its scheme, and with nothing escaped."""
    return f"file://{path}"


def _quoted(part: str) -> str:
    """A part of an asset key as the name of a folder, from which it can be told."""
    return part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="")
