"""Read CSV, JSON and Parquet files, exactly or not at all."""

from tableau_pipeline.ingest.options import files_version
from tableau_pipeline.ingest.read_files import read_files

__all__ = ["files_version", "read_files"]
