"""Where snapshots lie: `<root>/<asset key>/v-<time>-<random>/`, committed by their manifest."""

from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

from tableau_pipeline.refresh.snapshot import MANIFEST, Snapshot


def new_folder(root: Path, asset_key: str) -> Path:
    """The name of a folder for the next snapshot of a model; later names sort last."""
    version = f"v-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{uuid4().hex[:6]}"
    return _model(root, asset_key) / version


def newest(root: Path, asset_key: str) -> Snapshot | None:
    """The last committed snapshot of a model."""
    for folder in sorted(_model(root, asset_key).glob("v-*"), reverse=True):
        if is_committed(folder):
            return Snapshot.read(folder)
    return None


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
    return root.joinpath(*(quote(part, safe="") for part in asset_key.split("/")))
