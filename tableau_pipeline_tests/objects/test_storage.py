"""Files in a folder that a user may not write to."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tableau_pipeline.objects.storage import LocalStorage
from tableau_pipeline.objects.stores import StoreError

NOBODY = 65534


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A folder that a user may only read. Root could write to it, so root becomes another user."""
    (tmp_path / "file").write_bytes(b"old")
    is_root = os.geteuid() == 0
    tmp_path.chmod(0o555)
    # That user cannot open the parent folders, so the test works inside the folder.
    here = os.open(tmp_path, os.O_RDONLY)
    before = Path.cwd()
    os.fchdir(here)
    if is_root:
        os.seteuid(NOBODY)
    yield Path()
    if is_root:
        os.seteuid(0)
    os.chdir(before)
    os.close(here)
    tmp_path.chmod(0o755)


@pytest.mark.parametrize("key", ["new", "file", "folder/new"])
@pytest.mark.parametrize("write", [LocalStorage.put, LocalStorage.replace])
def test_a_user_who_may_only_read(locked: Path, write: object, key: str):
    """Prevents: a forbidden write ends in a stack trace, or leaves half a file."""
    storage = LocalStorage(locked)
    with pytest.raises(StoreError, match=f"Writing {key} failed: .*Let this user write"):
        write(storage, key, b"new")  # ty: ignore
    assert [*Path().iterdir()] == [Path("file")]
    assert storage.read("file") == b"old"
