"""The private folders of a user, and the copies of objects in them."""

import logging
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.objects.local_files import LocalCopies, scratch, temporary_folder
from tableau_pipeline.publishing.session import only_session
from tableau_pipeline.resources import data_dir, work_dir
from tableau_pipeline.resources.snapshots import local_copies

LOG = logging.getLogger(__name__)
REMEDY = "Remove it, or set TMPDIR to a folder of your own."


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The private folder of this user, which does not exist yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PIPELINE_DATA_DIR", "s3://lake/data")
    return tmp_path / f"tableau_pipeline-{os.getuid()}"


def reserve_a_token() -> None:
    with only_session("https://tableau.example.com", token="token", timeout=0, log=LOG):
        pass


def copy_an_object() -> None:
    local_copies(1).path("s3://lake/data/a", Path.touch)


@pytest.fixture(
    params=[scratch, data_dir, lambda: work_dir(keep=False), copy_an_object, reserve_a_token],
    ids=["scratch", "data", "work", "copies", "token"],
)
def use(request: pytest.FixtureRequest) -> Callable[[], object]:
    """Each function that needs the private folder."""
    local_copies.cache_clear()
    return request.param


def refused(use: Callable[[], object], reason: str) -> None:
    with pytest.raises(RefusedError, match=reason) as caught:
        use()
    assert str(caught.value).endswith(REMEDY)
    assert "\n" not in str(caught.value)


def test_a_link_is_not_followed(use: Callable[[], object], folder: Path, tmp_path: Path):
    """Prevents: the pipeline follows a link and removes the files of another folder."""
    victim = tmp_path / "victim" / "work" / "project"
    victim.mkdir(parents=True)
    (victim / "lock").touch()
    (victim / "thesis.txt").write_text("years")
    before = sorted((tmp_path / "victim").rglob("*"))
    (tmp_path / "victim").chmod(0o700)
    folder.symlink_to(tmp_path / "victim")
    refused(use, f"^{re.escape(str(folder))} is not a folder")
    assert sorted((tmp_path / "victim").rglob("*")) == before


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o705, 0o1777])
def test_a_folder_open_to_other_users(use: Callable[[], object], folder: Path, mode: int):
    """Prevents: another user reads the rows, or replaces a lock or a file that is published."""
    folder.mkdir()
    folder.chmod(mode)
    refused(use, re.escape(stat.filemode(stat.S_IFDIR | mode)))


@pytest.mark.parametrize(
    ("make", "kind"), [(Path.touch, "-"), (lambda path: path.symlink_to("missing"), "l")]
)
def test_no_folder_of_its_name(use: Callable[[], object], folder: Path, make: Callable, kind: str):
    """Prevents: a run ends in a FileExistsError, which names no remedy."""
    make(folder)
    refused(use, f"is not a folder that you alone can open \\({kind}")
    assert not folder.with_name("missing").exists()


def test_the_folder_of_another_user(
    use: Callable[[], object], folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Prevents: another user makes the folder first, and so controls the locks of refreshes."""
    folder.mkdir(mode=0o700)
    uid = os.getuid() + 1
    folder.rename(folder.with_name(f"tableau_pipeline-{uid}"))
    monkeypatch.setattr(os, "getuid", lambda: uid)
    refused(use, f"user {uid - 1}")


def test_it_is_private_whatever_the_umask(folder: Path):
    """Prevents: the umask makes the pipeline refuse a folder that it has made itself."""
    for umask in (0o000, 0o022, 0o077):
        previous = os.umask(umask)
        try:
            assert temporary_folder() == temporary_folder() == folder
        finally:
            os.umask(previous)
        assert folder.stat().st_mode & 0o777 == 0o700
        folder.rmdir()


class Source:
    """A source of objects, which records every download."""

    def __init__(self) -> None:
        self.fetched: list[str] = []

    def path(self, copies: LocalCopies, name: str) -> Path:
        def fetch(target: Path) -> None:
            self.fetched.append(name)
            target.write_text(name * 10)

        return Path(copies.path(f"s3://bucket/{name}", fetch))


def shared(folder: Path) -> int:
    """The size in bytes of all copies that are kept."""
    return sum(path.stat().st_size for path in folder.glob("*.parquet"))


def test_an_object_is_fetched_once(tmp_path: Path):
    """Prevents: every refresh downloads the same object again."""
    source, first = Source(), LocalCopies(tmp_path, limit=1000)
    with ThreadPoolExecutor(8) as executor:
        paths = [*executor.map(lambda name: source.path(first, name), "abcdefgh")]
    assert [path.read_text() for path in paths] == [name * 10 for name in "abcdefgh"]
    assert sorted(source.fetched) == [*"abcdefgh"]
    assert source.path(LocalCopies(tmp_path, limit=1000), "a").read_text() == "a" * 10
    assert source.path(first, "a") == paths[0]
    assert len(source.fetched) == 8


def test_what_is_read_is_not_removed(tmp_path: Path):
    """Prevents: a copy vanishes while hyperd reads it, because other copies need its room."""
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
    """Prevents: a table that every refresh reads is removed each time and downloaded again."""
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
    """Prevents: after a failed download, half a file passes for the object."""

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
from tableau_pipeline.objects.stores import LocalCopies
copies = LocalCopies(Path(sys.argv[1]), limit=1000)
copies.path("s3://bucket/a", lambda target: target.write_text("a"))
os._exit(9)
"""


def test_killed_processes_leave_nothing_for_ever(tmp_path: Path):
    """Prevents: the copies of killed runs fill the disk."""
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60)
    (left,) = (path for path in tmp_path.iterdir() if path.is_dir())
    alive = LocalCopies(tmp_path, limit=1000)
    source = Source()
    held = source.path(alive, "b")
    assert not left.exists()
    source.path(LocalCopies(tmp_path, limit=1000), "c")
    assert held.exists()
