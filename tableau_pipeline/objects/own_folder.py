"""A temporary folder of this process, which others remove if this process is killed."""

import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from threading import Lock
from weakref import finalize

from filelock import FileLock, Timeout

from tableau_pipeline.errors import RefusedError

# Held by the process of the folder for as long as it lives.
_LOCK = "lock"


@dataclass
class OwnFolder:
    """A folder in one that processes of this machine share; it is removed with the process."""

    parent: Path
    _removal: finalize | None = field(default=None, init=False)
    _path: Path | None = field(default=None, init=False)
    _opening: Lock = field(default_factory=Lock, init=False)

    def path(self) -> Path:
        """Return the folder; create it if need be, and remove those of killed processes."""
        with self._opening:
            if self._path is None:
                self.parent.mkdir(parents=True, exist_ok=True)
                self._remove_abandoned()
            while self._path is None:
                own = Path(mkdtemp(dir=self.parent))
                # Another process may take the new folder for an abandoned one until it is locked.
                with suppress(FileNotFoundError):
                    lock = FileLock(own / _LOCK, thread_local=False)
                    lock.acquire()
                    if (own / _LOCK).exists():
                        self._path = own
                        self._removal = finalize(self, _remove, own, lock)
            return self._path

    def remove(self) -> None:
        """Remove the folder; the next call of `path` creates another one."""
        with self._opening:
            if self._removal:
                self._removal()
            self._path = self._removal = None

    def _remove_abandoned(self) -> None:
        for lock in self.parent.glob(f"*/{_LOCK}"):
            with suppress(Timeout, OSError), FileLock(lock, timeout=0):
                shutil.rmtree(lock.parent, ignore_errors=True)


def scratch() -> Path:
    """Return the folder of this process for files that nobody needs after it.

    Raises:
        RefusedError: see `temporary_folder`.
    """
    return _own_folder(temporary_folder() / "work").path()


def temporary_folder() -> Path:
    """Return a folder of this user for what need not outlive this machine; create it if need be.

    Another user may make what has its name first, to read or exchange the rows, or to let us remove
    what a link leads to.

    Raises:
        RefusedError: what has its name is not a folder that this user alone can open.
    """
    user = os.getuid()
    folder = Path(gettempdir(), f"tableau_pipeline-{user}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    permissions = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        fault = "is a link"
    elif not stat.S_ISDIR(found.st_mode):
        fault = "is no folder"
    elif found.st_uid != user:
        fault = "belongs to another user"
    elif permissions & 0o077:
        fault = f"is open to other users (mode {permissions:o})"
    else:
        return folder
    raise RefusedError(f"{folder} {fault}. Remove it, or set TMPDIR to a folder of your own.")


@cache
def _own_folder(parent: Path) -> OwnFolder:
    return OwnFolder(parent)


def _remove(folder: Path, lock: FileLock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    lock.release()
