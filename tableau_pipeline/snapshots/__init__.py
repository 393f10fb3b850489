"""Models' rows as numbered, immutable versions; and files, read exactly, for models to return."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableau_pipeline.snapshots.files import read_files as read_files

__all__ = ["read_files"]


def __getattr__(name: str) -> Any:
    # Scripts that only refresh import this package too, and do without Spark.
    if name != "read_files":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tableau_pipeline.snapshots.files import read_files

    return read_files
