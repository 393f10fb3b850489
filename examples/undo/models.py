from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline import SparkResource, read_files

FILE = Path(__file__).with_name("visits.csv")


@dg.asset(io_manager_key="snapshots")
def visits(spark: SparkResource) -> DataFrame:
    """The number of visitors of each day."""
    return read_files(spark.spark_session, FILE, columns="day date, visitors bigint")
