"""Snapshots of frames, written as the pipeline writes them."""

from pathlib import Path

from pyspark.sql import DataFrame

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.snapshots.store import new_folder, newest
from tableau_pipeline.snapshots.write import write_snapshot


def store(frame: DataFrame, root: Path, asset_key: str = "model") -> Snapshot:
    """A new snapshot of a model below this root."""
    return write_snapshot(frame, new_folder(root, asset_key), asset_key=asset_key, run_id="run")


def newest_one(root: Path, asset_key: str = "model") -> Snapshot | None:
    """The newest snapshot of a model without partitions."""
    found = newest(root, asset_key)
    assert len(found) <= 1
    return found[0] if found else None
