"""Where snapshots lie, each committed by the manifest beside its files.

`<root>/<asset key>/v-<time>-<random>/` holds one write of a model; if the model is partitioned,
one snapshot in a folder `_partition=<key>` for each partition of that write.
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

from tableau_pipeline.core.snapshot import MANIFEST, Snapshot

# The column by which Spark divides a write into folders.
PARTITION = "_partition"
_TIME = "%Y%m%dT%H%M%S.%f"
_VERSION = re.compile(r"v-\d{8}T\d{6}\.\d{6}-[0-9a-f]{6}")
# Spark's ExternalCatalogUtils.escapePathName
_ESCAPED = set("\"#%'*/:=?\\\x7f{[]^")


def new_folder(root: Path, asset_key: str) -> Path:
    """The name of a folder for the next snapshot of a model; later names sort last."""
    version = f"v-{datetime.now(UTC):{_TIME}}-{uuid4().hex[:6]}"
    return _model(root, asset_key) / version


def versions(root: Path, asset_key: str) -> list[Path]:
    """The folders of all writes of a model, complete or not; the newest last."""
    folders = _model(root, asset_key).glob("v-*")
    return sorted(folder for folder in folders if _VERSION.fullmatch(folder.name))


def began(version: Path) -> datetime:
    """When the write into this folder began."""
    moment = version.name.split("-")[1]
    return datetime.strptime(moment, _TIME).replace(tzinfo=UTC)


def partition_folder(folder: Path, key: str) -> Path:
    """Where Spark writes a partition; in its own escaping of awkward characters."""
    escaped = "".join(f"%{ord(c):02X}" if c in _ESCAPED or ord(c) < 32 else c for c in key)
    return folder / f"{PARTITION}={escaped}"


def newest(root: Path, asset_key: str) -> tuple[Snapshot, ...]:
    """The committed content of a model: one snapshot, one for each partition, or none.

    The newest write tells whether the model is partitioned; of a partitioned one, each
    partition's own newest snapshot counts.
    """
    partitions: dict[str, Snapshot] = {}
    for version in reversed(versions(root, asset_key)):
        if is_committed(version):
            if partitions:
                break
            return (Snapshot.read(version),)
        for folder in partition_folders(version):
            if folder.name not in partitions and is_committed(folder):
                partitions[folder.name] = Snapshot.read(folder)
    return tuple(partitions[name] for name in sorted(partitions))


def partition_folders(version: Path) -> list[Path]:
    """The folders of a write's partitions, complete or not."""
    try:
        return sorted(version.glob(f"{PARTITION}=*"))
    except FileNotFoundError:  # It was just collected.
        return []


def is_committed(folder: Path) -> bool:
    """Whether the snapshot in this folder is complete."""
    return (folder / MANIFEST).exists()


def commit(snapshot: Snapshot) -> None:
    """Write the manifest: from now on the snapshot exists."""
    unfinished = snapshot.folder / f".{MANIFEST}"
    unfinished.write_text(snapshot.manifest(), encoding="utf-8")
    unfinished.replace(snapshot.folder / MANIFEST)


def spark_path(path: Path) -> str:
    """A path as Spark wants it: with its scheme, and with nothing escaped."""
    return f"file://{path}"


def _model(root: Path, asset_key: str) -> Path:
    # Spark takes the first folder of a relative path for the name of a host.
    return root.resolve().joinpath(*(quote(part, safe="") for part in asset_key.split("/")))
