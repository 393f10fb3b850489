"""A file that appears under its name only when it is complete."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Generator[Path]:
    """Where to write what shall be at `path`, and is when the block ends well."""
    # hyperd opens files by their ending, and the name is ours alone: one lock guards a data source.
    unfinished = path.absolute().with_name(f".{path.name}.unfinished.hyper")
    unfinished.unlink(missing_ok=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
