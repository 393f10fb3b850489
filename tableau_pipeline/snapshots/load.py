"""Reading snapshots with Spark."""

import re
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.snapshots.row_hash import column
from tableau_pipeline.snapshots.store import spark_path

# Spark takes a path that it reads for a pattern.
_GLOB = re.compile(r"[\\{}\[\]*?]")


def read_frame(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    """The rows of a snapshot; without the columns that only we use.

    Raises:
        RefusedError: its partitions differ in their columns.
    """
    snapshot.check_columns()
    columns = snapshot.columns
    files = [
        exact_path(snapshot.folder / file.name) for part in snapshot.parts for file in part.files
    ]
    if not files:
        schema = ", ".join(f"`{each.name.replace('`', '``')}` {each.type}" for each in columns)
        return spark.createDataFrame([], schema)
    # The files hold Spark's own schema: as text, the names inside of a struct lost their quotes.
    # The folder of a partition would show as a column.
    return spark.read.parquet(*files).select(*[column(each.name) for each in columns])


def exact_path(path: Path) -> str:
    """A path for Spark to read, whatever characters it has."""
    return _GLOB.sub(r"\\\g<0>", spark_path(path))
