"""Measure how much of the disk a folder takes."""

import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from benchmarks.peers.process_tree import Peak, watched


def watched_disk(folder: Path) -> AbstractContextManager[Peak]:
    """Measure the files of a folder twice a second, and keep the highest number of bytes."""
    return watched(lambda: _on_disk(folder), every=0.5)


def _on_disk(folder: Path) -> int:
    """Return the bytes of the files' blocks; like `du`, count a hard-linked file once."""
    found: dict[int, int] = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # The file is gone by now.
                stat = os.lstat(f"{place}/{name}")
                found[stat.st_ino] = stat.st_blocks * 512
    return sum(found.values())
