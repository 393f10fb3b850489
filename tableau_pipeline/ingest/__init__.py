"""Read CSV, JSON and Parquet files exactly, or refuse them."""

from tableau_pipeline.ingest.read_files import read_files

__all__ = ["read_files"]
