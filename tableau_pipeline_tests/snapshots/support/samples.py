"""Snapshots of frames, written as the pipeline writes them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from tableau_pipeline.core.snapshot import Snapshot, Span
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline.snapshots.write import write_partitions, write_snapshot


def store(frame: DataFrame, root: Path, asset_key: str = "model") -> Snapshot:
    """A new version of a model below this root."""
    return write_snapshot(frame, SnapshotStore(root), asset_key=asset_key, run_id="run")


def store_partitions(
    frame: DataFrame,
    root: Path,
    expression: str,
    partitions: Mapping[str, Span] | Sequence[str],
) -> Snapshot:
    """The version after partitions of the model were written."""
    return write_partitions(
        frame,
        SnapshotStore(root),
        expression=expression,
        partitions=partitions,
        asset_key="model",
        run_id="test",
    )


def newest(root: Path, asset_key: str = "model") -> Snapshot | None:
    """The newest version of a model."""
    return SnapshotStore(root).newest(asset_key)


def rows(snapshot: Snapshot | None) -> dict[str | None, int]:
    """How many rows each part has."""
    return {part.partition: part.fingerprint.rows for part in snapshot.parts} if snapshot else {}
