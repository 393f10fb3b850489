"""How much of the disk a folder takes."""

import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from benchmarks.peers.process_tree import Peak, watched


def watched_disk(folder: Path) -> AbstractContextManager[Peak]:
    """Look at the files of a folder twice a second."""
    return watched(lambda: _on_disk(folder), every=0.5)


def _on_disk(folder: Path) -> int:
    """The bytes of the blocks that the files take, each counted once, as `du` does."""
    found: dict[int, int] = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # It is gone by now.
                stat = os.lstat(f"{place}/{name}")
                found[stat.st_ino] = stat.st_blocks * 512
    return sum(found.values())
