"""How much of the disk a folder takes."""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.peers.process_tree import Peak

_EVERY = 0.5  # seconds


@contextmanager
def watched_disk(folder: Path) -> Generator[Peak]:
    """Look at the files of a folder twice a second."""
    peak, done = Peak(), threading.Event()

    def look() -> None:
        while not done.wait(_EVERY):
            peak.bytes = max(peak.bytes, _on_disk(folder))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _on_disk(folder: Path) -> int:
    """The bytes of the blocks that the files take, each counted once, as `du` does."""
    found: dict[int, int] = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # It is gone by now.
                stat = os.lstat(f"{place}/{name}")
                found[stat.st_ino] = stat.st_blocks * 512
    return sum(found.values())
