"""Keep temporary files on this machine: the folder of a process, and local copies of objects."""

import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from threading import Lock
from uuid import uuid4
from weakref import finalize

from filelock import FileLock, Timeout

from tableau_pipeline.errors import SettingError

# The name of a file in the folder of each process. The process locks this file as long as the
# process runs.
_LOCK = "lock"


@dataclass
class OwnFolder:
    """A folder of this process, in a folder that processes of this machine share.

    A process removes its folder when it ends. If the process is killed, another process removes the
    folder.
    """

    parent: Path
    _removal: finalize | None = field(default=None, init=False)
    _path: Path | None = field(default=None, init=False)
    _opening: Lock = field(default_factory=Lock, init=False)

    def path(self) -> Path:
        """Return the folder; the first call creates it and removes folders of killed processes."""
        with self._opening:
            if self._path is None:
                self.parent.mkdir(parents=True, exist_ok=True)
                for abandoned in self.parent.glob(f"*/{_LOCK}"):
                    with suppress(Timeout, OSError), FileLock(abandoned, timeout=0):
                        shutil.rmtree(abandoned.parent, ignore_errors=True)
            while self._path is None:
                own = Path(mkdtemp(dir=self.parent))
                # Try again if the folder is gone: before its lock is taken, another process may
                # mistake the new folder for an abandoned one.
                with suppress(FileNotFoundError):
                    lock = FileLock(own / _LOCK, thread_local=False)
                    lock.acquire()
                    if (own / _LOCK).exists():
                        self._path = own
                        self._removal = finalize(self, _remove, own, lock)
            return self._path

    def remove(self) -> None:
        """Remove the folder; the next call of `path` creates a new folder."""
        with self._opening:
            if self._removal:
                self._removal()
            self._path = self._removal = None


def _remove(folder: Path, lock: FileLock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock.release()


_own_folder = cache(OwnFolder)


def scratch() -> Path:
    """Return the folder of this process for temporary files that no other process reads.

    Raises:
        RefusedError: see `temporary_folder`.
    """
    return _own_folder(temporary_folder() / "work").path()


def temporary_folder() -> Path:
    """Return this user's folder for temporary files; create the folder if it is missing.

    The folder is checked, because another user may have created a folder or link of this name
    before. With a folder, that user could read or replace our rows; with a link, that user could
    make us remove other files.

    Raises:
        RefusedError: the path is not a folder, or the folder belongs to another user, or other
            users can open it.
    """
    user = os.getuid()
    folder = Path(gettempdir(), f"tableau_pipeline-{user}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o077:
        raise SettingError(
            f"{folder} is not a folder that you alone can open ({stat.filemode(status.st_mode)}, "
            f"user {status.st_uid}). Remove it, or set TMPDIR to a folder of your own.",
        )
    return folder


@dataclass
class LocalCopies:
    """Local copies of objects, in a folder that processes of this machine share.

    Each process reads a copy through its own hard link. So processes can still read a copy that
    another process has removed to make room.

    Attributes:
        limit: the most bytes of all copies together. Removed copies do not count, even if running
            processes still use them.
    """

    folder: Path
    limit: int
    _own: OwnFolder = field(init=False)

    def __post_init__(self) -> None:
        self._own = OwnFolder(self.folder)

    def path(self, url: str, fetch: Callable[[Path], None]) -> str:
        """Return the path of a copy of the object at `url`.

        Args:
            fetch: a function that downloads the object to a path. It is called only if there is no
                copy.
        """
        name = f"{hashlib.sha256(url.encode()).hexdigest()}.parquet"
        mine, shared = self._own.path() / name, self.folder / name
        if mine.exists():
            return str(mine)
        try:
            # Ignore an existing link, which another thread may have made.
            with suppress(FileExistsError):
                os.link(shared, mine)
            # Record the time of use, because `make_room` removes the least recently used copies
            # first.
            os.utime(mine)
        except FileNotFoundError:
            unfinished = mine.with_suffix(f".{uuid4().hex}")
            fetch(unfinished)
            # Flush the file, so that a power failure cannot leave half a copy under the final name.
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
            unfinished.replace(mine)
            with suppress(FileExistsError):
                os.link(mine, shared)
        return str(mine)

    def make_room(self) -> None:
        """Remove the least recently used copies until the remaining copies are within the limit."""
        used: list[tuple[float, int, Path]] = []
        for path in self.folder.glob("*.parquet"):
            # Another process may have removed the copy.
            with suppress(FileNotFoundError):
                status = path.stat()
                used.append((status.st_mtime, status.st_size, path))
        surplus = sum(size for _, size, _ in used) - self.limit
        for _, size, path in sorted(used):
            if surplus <= 0:
                break
            path.unlink(missing_ok=True)
            surplus -= size

    def release(self) -> None:
        """Remove this process's links to copies; all paths from `path` become invalid."""
        self._own.remove()
