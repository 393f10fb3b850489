"""Snapshots written days ago, without Spark and nearly without content."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Snapshot
from tableau_pipeline.snapshots.store import commit, new_folder, partition_folder

FILE = DataFile(name="part-0.parquet", rows=0, size=1)


def version(root: Path, days: float, asset_key: str = "model") -> Path:
    """The folder of a write that began so many days ago."""
    began = datetime.now(UTC) - timedelta(days=days)
    model = new_folder(root, asset_key).parent
    return model / f"v-{began:%Y%m%dT%H%M%S.%f}-{uuid4().hex[:6]}"


def whole(root: Path, days: float, *, committed: bool = True, asset_key: str = "model") -> Path:
    """Write a whole model."""
    return _write(version(root, days, asset_key), committed=committed)


def parts(
    root: Path, days: float, partitions: Iterable[str], *, uncommitted: Iterable[str] = ()
) -> dict[str, Path]:
    """Write some partitions of the model; a killed write had committed some of them only."""
    folder = version(root, days)
    folder.mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    written = {
        key: _write(partition_folder(folder, key), key, committed=key not in uncommitted)
        for key in (*partitions, *uncommitted)
    }
    return {key: written[key] for key in written if key not in uncommitted}


def _write(folder: Path, partition: str | None = None, *, committed: bool) -> Path:
    folder.mkdir(parents=True)
    (folder / FILE.name).write_bytes(b"x")
    if committed:
        commit(
            Snapshot(
                folder=folder,
                asset_key="model",
                partition=partition,
                created_at=datetime.now(UTC),
                run_id="test",
                columns=(),
                fingerprint=Fingerprint(rows=0, hash_sum=0),
                files=(FILE,),
            )
        )
    return folder


def aged(folder: Path, root: Path, days: float, asset_key: str = "model") -> Path:
    """Let a write of a whole model seem to have begun so many days ago."""
    return folder.rename(version(root, days, asset_key))
