"""Read CSV, JSON and Parquet files, exactly or not at all."""

from tableau_pipeline.ingest.read_files import read_files

__all__ = ["read_files"]
