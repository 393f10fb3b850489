"""Reading snapshots with Spark."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.refresh.snapshot import Snapshot, common_columns
from tableau_pipeline.snapshots.row_hash import column
from tableau_pipeline.snapshots.store import spark_path


def read_frame(spark: SparkSession, snapshots: Sequence[Snapshot]) -> DataFrame:
    """The rows of these snapshots of one model; without the columns that only we use.

    Raises:
        RefusedError: their columns differ.
    """
    columns = common_columns(snapshots)
    schema = ", ".join(f"`{each.name.replace('`', '``')}` {each.type}" for each in columns)
    files = [
        spark_path(snapshot.folder / file.name) for snapshot in snapshots for file in snapshot.files
    ]
    if not files:
        return spark.createDataFrame([], schema)
    # The folder of a partition would show as a column.
    stored = spark.read.schema(schema).parquet(*files)
    return stored.select(*[column(each.name) for each in columns])
