"""Read CSV, JSON and Parquet files and database tables, exactly or not at all."""

from tableau_pipeline.ingest.errors import READ_ERRORS, Reading, reason
from tableau_pipeline.ingest.options import (
    Files,
    Format,
    check_options,
    files_version,
    format_of,
    found_files,
)
from tableau_pipeline.ingest.read_files import load, read_files

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
