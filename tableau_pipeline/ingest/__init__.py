"""Read CSV, JSON and Parquet files and database tables, exactly or not at all."""

from tableau_pipeline.ingest.found import Files, Format, files_version, format_of, found_files
from tableau_pipeline.ingest.options import check_options
from tableau_pipeline.ingest.read_files import load, read_files
from tableau_pipeline.ingest.reading import Reading
from tableau_pipeline.ingest.spark_errors import READ_ERRORS, reason

__all__ = [
    "READ_ERRORS",
    "Files",
    "Format",
    "Reading",
    "check_options",
    "files_version",
    "format_of",
    "found_files",
    "load",
    "read_files",
    "reason",
]
