"""Copies of immutable objects on the local disk, for hyperd."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from uuid import uuid4

from filelock import FileLock, Timeout

# The lock that a process holds on its own folder for as long as it lives.
_LOCK = "lock"


@dataclass
class LocalCopies:
    """Copies in a folder that processes of this machine share.

    A process reads a copy by a link of its own. So a copy that is removed to make room stays
    readable for those that use it.

    Attributes:
        limit: the bytes of all copies; what running processes read is not counted.
    """

    folder: Path
    limit: int
    _own: Path | None = field(default=None, init=False)
    _lock: FileLock | None = field(default=None, init=False)
    _opening: Lock = field(default_factory=Lock, init=False)

    def path(self, url: str, fetch: Callable[[Path], None]) -> str:
        """Return the path of a copy of the object at `url`.

        Args:
            fetch: downloads it to a path, if there is no copy of it.
        """
        name = f"{hashlib.sha256(url.encode()).hexdigest()}.parquet"
        mine, shared = self._folder() / name, self.folder / name
        if mine.exists():
            return str(mine)
        try:
            # Another thread may have been faster.
            with suppress(FileExistsError):
                os.link(shared, mine)
            # The copies that were used last are kept longest.
            os.utime(mine)
        except FileNotFoundError:
            unfinished = mine.with_suffix(f".{uuid4().hex}")
            fetch(unfinished)
            # A power failure must not leave half a copy that has its name.
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
            unfinished.replace(mine)
            with suppress(FileExistsError):
                os.link(mine, shared)
        return str(mine)

    def make_room(self) -> None:
        """Remove the copies that were not used for the longest time, if there are too many."""
        sizes = dict(self._sizes())
        surplus = sum(size for _, size in sizes.values()) - self.limit
        for path, (_, size) in sorted(sizes.items(), key=lambda each: each[1]):
            if surplus <= 0:
                break
            path.unlink(missing_ok=True)
            surplus -= size

    def release(self) -> None:
        """Let go of all copies; the paths that were returned are no longer valid."""
        if self._own and self._lock:
            shutil.rmtree(self._own, ignore_errors=True)
            self._lock.release()
        self._own = self._lock = None

    def __del__(self) -> None:
        self.release()

    def _folder(self) -> Path:
        """The folder of this process."""
        with self._opening:
            if self._own is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._remove_abandoned()
            while self._own is None:
                own = Path(mkdtemp(dir=self.folder))
                # Another process may take the new folder for an abandoned one until it is locked.
                with suppress(FileNotFoundError):
                    self._lock = FileLock(own / _LOCK, thread_local=False)
                    self._lock.acquire()
                    self._own = own if (own / _LOCK).exists() else None
            return self._own

    def _remove_abandoned(self) -> None:
        """Remove the folders of processes that were killed."""
        for lock in self.folder.glob(f"*/{_LOCK}"):
            with suppress(Timeout, OSError), FileLock(lock, timeout=0):
                shutil.rmtree(lock.parent, ignore_errors=True)

    def _sizes(self) -> Iterator[tuple[Path, tuple[float, int]]]:
        """Each shared copy with the time of its last use and its bytes."""
        for path in self.folder.glob("*.parquet"):
            # Another process may remove it meanwhile.
            with suppress(FileNotFoundError):
                found = path.stat()
                yield path, (found.st_mtime, found.st_size)
