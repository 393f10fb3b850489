"""Write a file that appears under its name only when it is complete."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_path(path: Path) -> Generator[Path]:
    """Yield the path to write to; it replaces `path` if the block succeeds."""
    # hyperd requires the suffix. The name is not random, because a lock guards each data source.
    unfinished = path.absolute().with_name(f".{path.name}.unfinished.hyper")
    unfinished.unlink(missing_ok=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
