"""One fact table and one dimension table, each read from a CSV file in this folder."""

from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline import SparkResource, read_files

FOLDER = Path(__file__).parent


@dg.asset(io_manager_key="snapshots")
def orders(spark: SparkResource) -> DataFrame:
    """Every order."""
    columns = "order_id bigint, customer_id bigint, amount decimal(10,2)"
    return read_files(spark.spark_session, FOLDER / "orders.csv", columns=columns)


@dg.asset(io_manager_key="snapshots")
def customers(spark: SparkResource) -> DataFrame:
    """Every customer."""
    columns = "customer_id bigint, name string"
    return read_files(spark.spark_session, FOLDER / "customers.csv", columns=columns)
