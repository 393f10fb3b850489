"""A table, and the keys of the rows that its database reports as changed."""

from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline import SparkResource, read_files

FOLDER = Path(__file__).parent


@dg.asset(io_manager_key="snapshots")
def accounts(spark: SparkResource) -> DataFrame:
    """Every account as it is now."""
    columns = "account_id bigint, balance bigint"
    return read_files(spark.spark_session, FOLDER / "accounts.csv", columns=columns)


@dg.asset(io_manager_key="snapshots")
def account_changes(spark: SparkResource) -> DataFrame:
    """The keys of the accounts that were opened, changed or closed since the last refresh."""
    return read_files(spark.spark_session, FOLDER / "account_changes.csv", columns="id bigint")
