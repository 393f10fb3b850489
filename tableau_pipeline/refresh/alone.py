"""One refresh of a data source at a time, on everything that shares its folder."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tableau_pipeline.errors import RefreshError


@contextmanager
def alone(path: Path, *, what: str, timeout: float, log: logging.Logger) -> Generator[None]:
    """Hold the lock file at `path` for as long as the block runs.

    Args:
        what: is refreshed.
        timeout: seconds to wait for another one to end.

    Raises:
        RefreshError: another one has held it for longer.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log.info("Another refresh of %s is running: waiting for it", what)
        try:
            lock.acquire(timeout=timeout)
        except Timeout:
            raise RefreshError(
                f"Another refresh of {what} has held {path} for more than {timeout:.0f} s. Look "
                "for a hanging run in Dagster, and end it."
            ) from None
    try:
        yield
    finally:
        lock.release()
