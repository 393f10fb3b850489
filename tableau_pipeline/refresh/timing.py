"""Measure the time that each phase of a refresh takes."""

import time
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def phase(seconds: dict[str, float], name: str) -> Generator[None]:
    """Add the duration of the block to the seconds of a phase."""
    started = time.monotonic()
    try:
        yield
    finally:
        seconds[name] = round(seconds.get(name, 0) + time.monotonic() - started, 3)
