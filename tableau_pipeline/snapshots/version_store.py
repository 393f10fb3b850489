"""Store versions of models. A version is committed when its manifest is written.

The manifest `<root>/<asset key>/@versions/<number>.json` names the files of a version. Each write
stores its files in a new folder `<root>/<asset key>/@data/<random>/`. Stored files never change.
"""

import gc
import json
import re
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import random
from urllib.parse import quote, unquote
from uuid import uuid4

from pydantic import ValidationError

from tableau_pipeline.core.snapshot import Part, Snapshot
from tableau_pipeline.errors import DamagedSnapshotError, SettingError
from tableau_pipeline.hyper.parquet import Folder
from tableau_pipeline.hyper.types import ROW_HASH, Column, json_text
from tableau_pipeline.objects.storage import LocalStorage, Storage
from tableau_pipeline.objects.stores import StoreError, is_url
from tableau_pipeline.outcome import Code

# Quoting removes every @ from the keys of models, so no model can have the folder "sales/@data".
_VERSIONS, _DATA = "@versions", "@data"
# The column with the partition key of each row. Spark writes each row to the folder of its key.
PARTITION = "_partition"
_KEY = re.compile(
    rf"(?P<model>.+?)/({_VERSIONS}/(?P<number>\d+)\.json|(?P<write>{_DATA}/[^/]+)/.*)", re.DOTALL
)


@dataclass(frozen=True)
class SnapshotStore:
    """The versions of all models. A slash separates the parts of an asset key, such as "a/b".

    Attributes:
        root: the path of a local folder, or another storage.
    """

    root: Path | Storage

    @property
    def storage(self) -> Storage:
        """The storage with the versions of all models."""
        if isinstance(self.root, Path):
            if is_url(str(self.root), setting="root"):
                raise SettingError(f"{self.root} is a URL, not a path: use an ObjectStorage.")
            # Make the path absolute: in a relative path, Spark would read the first folder as a
            # host name.
            return LocalStorage(self.root.resolve())
        return self.root

    def newest(self, asset_key: str) -> Snapshot | None:
        """Return the newest version of a model; None if there is no version."""
        while numbers := self.numbers(asset_key):
            # If the version is None, it was replaced and removed in the meantime: look again.
            if snapshot := self.version(asset_key, numbers[-1]):
                return snapshot
        return None

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version of a model; None if it was removed.

        Raises:
            DamagedSnapshotError: the manifest cannot be read. The error names the file and the
                remedy.
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
        """Store a new version with the number after the newest number.

        Args:
            make: a function that returns the new version. Its arguments are the new number and the
                version before, which is None for the first version. The function is called again
                whenever another writer was faster.
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
        """Remove a version with the files of its write; nothing may refer to the version."""
        key, number = snapshot.asset_key, snapshot.number
        # Delete the manifest first: after an interruption, every remaining version has all its
        # files.
        self.storage.delete(self.manifest(key, number))
        own_parts = [part for part in snapshot.parts if part.version == number]
        for folder in {file.name.rpartition("/")[0] for part in own_parts for file in part.files}:
            self.discard(key, "/".join(folder.split("/")[:2]))

    def discard(self, asset_key: str, folder: str) -> None:
        """Remove the folder of a write with its files, as far as possible."""
        prefix = f"{model_key(asset_key)}/{folder}/"
        # Ignore errors, because the retention of snapshots will remove any remaining files.
        with suppress(OSError, StoreError):
            # Delete in reverse order, so that the content of a folder is deleted before the folder.
            for key in sorted((entry.key for entry in self.storage.list(prefix)), reverse=True):
                self.storage.delete(key)

    @contextmanager
    def _manifest_errors(self, asset_key: str, number: int) -> Generator[None]:
        """Turn an error about a manifest into an error that names the file and the remedy.

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
    """Pause the garbage collector during the block.

    Reading a manifest leaves nothing to collect. With many partitions, repeated collections took
    longer than the reading itself.
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
    # Quote the names in a form that can be unquoted. Quote "." and "..", too, because they would
    # name other folders.
    quoted = [quote(part, safe="") for part in asset_key.split("/")]
    return "/".join(part.replace(".", "%2E") if part in (".", "..") else part for part in quoted)


def parse_key(key: str) -> tuple[str, int | None, str] | None:
    """Return the model, the version number, and the folder of the write that a key contains.

    For the key of a manifest, the folder is "". For the key of a data file, the number is None, and
    the folder is relative to the folder of the model. For any other key, return None.
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
    """Return the parts of the next version: the newly written parts, and the earlier parts to keep.

    A model is stored either whole or in partitions. When a model changes between these two forms,
    the write replaces all earlier parts.

    Args:
        columns: the columns of the write.
        keeps: a function that tells whether an earlier partition still belongs to the model.
    """
    parts = {part.partition: part for part in written}
    if before and None not in parts:
        for part in before.parts:
            if part.partition is not None and part.partition not in parts and keeps(part):
                # Set the columns of a part only if they differ from the columns of the version.
                own = part.columns or before.columns
                own = None if own == columns else own
                is_same = part.columns == own
                parts[part.partition] = (
                    part if is_same else part.model_copy(update={"columns": own})
                )
    return tuple(sorted(parts.values(), key=lambda part: part.partition or ""))


def reserved_names(names: Iterable[str]) -> set[str]:
    """Return names that no column of a model may have, because the store itself uses them."""
    return {ROW_HASH, PARTITION} | {json_text(name).casefold() for name in names}


def commit_parts(
    store: SnapshotStore,
    asset_key: str,
    written: Sequence[Part],
    *,
    columns: Sequence[Column],
    comments: Mapping[str, str],
    run_id: str,
    parts: Callable[[Sequence[Part], Snapshot | None], Sequence[Part]] = lambda new, _: new,
) -> Snapshot:
    """Commit the next version of a model.

    Args:
        written: the newly stored parts. Their version number is set to the number of the new
            version.
        parts: a function that returns all parts of the version. Its arguments are the new parts and
            the version before.
    """

    def make(number: int, before: Snapshot | None) -> Snapshot:
        new = [part.model_copy(update={"version": number}) for part in written]
        return Snapshot(
            folder=store.folder(asset_key),
            asset_key=asset_key,
            number=number,
            created_at=datetime.now(UTC),
            run_id=run_id,
            columns=tuple(columns),
            comments=dict(comments),
            parts=tuple(parts(new, before)),
        )

    return store.commit(asset_key, make)


@contextmanager
def new_write(store: SnapshotStore, asset_key: str) -> Generator[str]:
    """Yield a new folder for the files of a write; remove it if the write certainly failed."""
    folder = store.new_folder()
    try:
        yield folder
    except StoreError:
        # Keep the files, because the commit may have taken effect. Otherwise, the retention of
        # snapshots removes the files.
        raise
    except BaseException:
        # Ignore further errors of the store and damaged versions: they must not hide why the write
        # failed.
        with suppress(StoreError, DamagedSnapshotError):
            # If a version names the files, the run was interrupted just after the commit: keep the
            # files.
            if not any(file.startswith(folder) for file in store.files(asset_key)):
                store.discard(asset_key, folder)
        raise
