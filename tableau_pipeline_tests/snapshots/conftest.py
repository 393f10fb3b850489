from pathlib import Path

import pytest

from tableau_pipeline.snapshots.store import SnapshotStore


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    """An empty one."""
    return SnapshotStore(tmp_path / "snapshots")
