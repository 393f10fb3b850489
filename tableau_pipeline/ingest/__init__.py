"""Read CSV, JSON and Parquet files exactly, or refuse them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableau_pipeline.ingest.frames import read_files

__all__ = ["read_files"]


def __getattr__(name: str) -> Any:
    """Import `read_files` when it is first used: publishing files needs no Spark."""
    if name == "read_files":
        from tableau_pipeline.ingest.frames import read_files

        return read_files
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
