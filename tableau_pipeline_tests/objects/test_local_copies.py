import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tableau_pipeline.objects.local import LocalCopies


class Source:
    """What copies are made of; counts the downloads."""

    def __init__(self) -> None:
        self.fetched: list[str] = []

    def path(self, copies: LocalCopies, name: str) -> Path:
        def fetch(target: Path) -> None:
            self.fetched.append(name)
            target.write_text(name * 10)

        return Path(copies.path(f"s3://bucket/{name}", fetch))


def shared(folder: Path) -> int:
    """The bytes of the copies that are kept."""
    return sum(path.stat().st_size for path in folder.glob("*.parquet"))


def test_an_object_is_fetched_once(tmp_path: Path):
    """Prevents: the same download in every refresh, or for every question about a model."""
    source, first = Source(), LocalCopies(tmp_path, limit=1000)
    with ThreadPoolExecutor(8) as executor:
        paths = [*executor.map(lambda name: source.path(first, name), "abcdefgh")]
    assert [path.read_text() for path in paths] == [name * 10 for name in "abcdefgh"]
    assert sorted(source.fetched) == [*"abcdefgh"]
    assert source.path(LocalCopies(tmp_path, limit=1000), "a").read_text() == "a" * 10
    assert source.path(first, "a") == paths[0]
    assert len(source.fetched) == 8


def test_what_is_read_is_not_removed(tmp_path: Path):
    """Prevents: a file that vanishes while hyperd reads it, as others needed the room."""
    source, reader = Source(), LocalCopies(tmp_path, limit=25)
    kept = source.path(reader, "a")
    other = LocalCopies(tmp_path, limit=25)
    for name in "bcd":
        source.path(other, name)
    other.make_room()
    assert shared(tmp_path) == 20
    assert kept.read_text() == "a" * 10
    reader.release()
    assert not kept.exists()
    source.path(LocalCopies(tmp_path, limit=25), "a")
    assert source.fetched == [*"abcda"]


def test_what_was_used_last_is_kept_longest(tmp_path: Path):
    """Prevents: a table that every refresh reads, and that every refresh downloads."""
    source = Source()
    for name in ["a", "b", "a", "c"]:
        copies = LocalCopies(tmp_path, limit=20)
        source.path(copies, name)
        copies.make_room()
        copies.release()
    assert source.fetched == ["a", "b", "c"]
    source.path(LocalCopies(tmp_path, limit=20), "a")
    assert source.fetched == ["a", "b", "c"]


def test_a_failed_download_leaves_no_copy(tmp_path: Path):
    """Prevents: half a file that passes for the object from then on."""

    def broken(target: Path) -> None:
        target.write_text("half")
        raise OSError("connection reset")

    copies, source = LocalCopies(tmp_path, limit=1000), Source()
    with pytest.raises(OSError, match="reset"):
        copies.path("s3://bucket/a", broken)
    assert source.path(copies, "a").read_text() == "a" * 10


KILLED = """
import os, sys
from pathlib import Path
from tableau_pipeline.objects.local import LocalCopies
copies = LocalCopies(Path(sys.argv[1]), limit=1000)
copies.path("s3://bucket/a", lambda target: target.write_text("a"))
os._exit(9)
"""


def test_killed_processes_leave_nothing_for_ever(tmp_path: Path):
    """Prevents: a disk that fills with what killed runs had read."""
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60)
    (left,) = (path for path in tmp_path.iterdir() if path.is_dir())
    alive = LocalCopies(tmp_path, limit=1000)
    source = Source()
    held = source.path(alive, "b")
    assert not left.exists()
    source.path(LocalCopies(tmp_path, limit=1000), "c")
    assert held.exists()
