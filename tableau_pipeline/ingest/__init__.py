"""Read CSV, JSON and Parquet files exactly, or refuse them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableau_pipeline.ingest.spark_reader import read_files

__all__ = ["read_files"]


def __getattr__(name: str) -> Any:
    """Import `read_files` at its first use, so that publishing files works without Spark."""
    if name == "read_files":
        from tableau_pipeline.ingest.spark_reader import read_files

        return read_files
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
