"""Read snapshots with Spark."""

import re
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.snapshots.row_hash import column
from tableau_pipeline.snapshots.store import spark_path

# Spark treats a path to read as a glob pattern.
_GLOB = re.compile(r"[\\{}\[\]*?]")


def read_frame(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    """Read the rows of a snapshot, without the columns for internal use.

    Raises:
        RefusedError: the columns of its partitions differ.
    """
    snapshot.check_columns()
    columns = snapshot.columns
    files = [
        exact_path(snapshot.folder / file.name) for part in snapshot.parts for file in part.files
    ]
    if not files:
        schema = ", ".join(f"`{each.name.replace('`', '``')}` {each.type}" for each in columns)
        return spark.createDataFrame([], schema)
    # Without a schema, Spark uses its own, stored in the files; as DDL text, field names inside a
    # struct would lose their quotes. The select drops the column that Spark adds for a partition
    # folder.
    return spark.read.parquet(*files).select(*[column(each.name) for each in columns])


def exact_path(path: Path) -> str:
    """Escape a path so that Spark reads exactly this path."""
    return _GLOB.sub(r"\\\g<0>", spark_path(path))
