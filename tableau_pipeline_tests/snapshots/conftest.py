from pathlib import Path

import pytest

from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.storage import LocalStorage, ObjectStorage, Storage
from tableau_pipeline.snapshots.version_store import SnapshotStore


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    """Return an empty store."""
    return SnapshotStore(tmp_path / "snapshots")


@pytest.fixture(params=["on a disk", "objects"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Return an empty storage: a local folder or an object store."""
    root = tmp_path / "root"
    root.mkdir()
    if request.param == "on a disk":
        return LocalStorage(root)
    # The library for object stores can also keep objects on a disk.
    return ObjectStorage(root.as_uri(), LocalCopies(tmp_path / "copies", limit=10**6))
