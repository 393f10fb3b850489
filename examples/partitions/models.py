"""A model with daily partitions. One run computes a few days, or all days of a backfill."""

from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline import SparkResource, read_files

FILE = Path(__file__).with_name("orders_by_day.csv")


@dg.asset(
    partitions_def=dg.DailyPartitionsDefinition("2026-01-01", timezone="Europe/Paris"),
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={"partition_expr": "order_date"},
    io_manager_key="snapshots",
)
def orders_by_day(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    """The orders of the days that this run computes."""
    columns = "order_id bigint, order_date date, amount decimal(10,2)"
    rows = read_files(spark.spark_session, FILE, columns=columns)
    window = context.partition_time_window
    first, end = window.start.date(), window.end.date()
    return rows.where((rows.order_date >= first) & (rows.order_date < end))
