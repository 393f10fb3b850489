"""CSV, JSON and Parquet files, read exactly or refused."""

from tableau_pipeline.snapshots.files.found import Files, Format, format_of, found_files
from tableau_pipeline.snapshots.files.options import check_options
from tableau_pipeline.snapshots.files.read import load, read_files
from tableau_pipeline.snapshots.files.reading import Reading
from tableau_pipeline.snapshots.files.spark_errors import READ_ERRORS, reason

__all__ = [
    "READ_ERRORS",
    "Files",
    "Format",
    "Reading",
    "check_options",
    "format_of",
    "found_files",
    "load",
    "read_files",
    "reason",
]
