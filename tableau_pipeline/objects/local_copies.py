"""Copies of immutable objects on the local disk, for hyperd."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from tableau_pipeline.objects.own_folder import OwnFolder


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
    _own: OwnFolder = field(init=False)

    def __post_init__(self) -> None:
        self._own = OwnFolder(self.folder)

    def path(self, url: str, fetch: Callable[[Path], None]) -> str:
        """Return the path of a copy of the object at `url`.

        Args:
            fetch: downloads it to a path, if there is no copy of it.
        """
        name = f"{hashlib.sha256(url.encode()).hexdigest()}.parquet"
        mine, shared = self._own.path() / name, self.folder / name
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
        self._own.remove()

    def _sizes(self) -> Iterator[tuple[Path, tuple[float, int]]]:
        """Each shared copy with the time of its last use and its bytes."""
        for path in self.folder.glob("*.parquet"):
            # Another process may remove it meanwhile.
            with suppress(FileNotFoundError):
                found = path.stat()
                yield path, (found.st_mtime, found.st_size)
