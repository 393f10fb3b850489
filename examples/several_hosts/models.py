from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline import SparkResource, read_files

FILE = Path(__file__).with_name("stock.csv")


@dg.asset(io_manager_key="snapshots")
def stock(spark: SparkResource) -> DataFrame:
    """The stock of each shop."""
    return read_files(spark.spark_session, FILE, columns="article bigint, pieces bigint")
