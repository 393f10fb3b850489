from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline import SparkResource, read_files

FILE = Path(__file__).with_name("invoices.csv")


@dg.asset(io_manager_key="snapshots")
def invoices(spark: SparkResource) -> DataFrame:
    """Every invoice."""
    return read_files(spark.spark_session, FILE, columns="invoice_id bigint, amount decimal(10,2)")
