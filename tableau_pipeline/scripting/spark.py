"""Functions for scripts that read files and write models with Spark."""

from tableau_pipeline.ingest import read_files
from tableau_pipeline.snapshots.spark import spark_session
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline.snapshots.write import write_snapshot

__all__ = ["SnapshotStore", "read_files", "spark_session", "write_snapshot"]
