"""Models that read the tables that dbt wrote."""

import os

import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline.resources import SparkResource


@dg.asset(
    deps=[["shop", "orders"], ["shop", "customers"]],
    automation_condition=dg.AutomationCondition.eager()
    & dg.AutomationCondition.all_deps_blocking_checks_passed(),
)
def sales(spark: SparkResource) -> DataFrame:
    """Every order with its customer's name; runs when dbt's assets in Dagster are updated."""
    return _dbt(spark, "orders").join(_dbt(spark, "customers"), "customer_id", "left")


@dg.asset
def customers(spark: SparkResource) -> DataFrame:
    """Every customer; the trigger of the data source runs this model."""
    return _dbt(spark, "customers")


def _dbt(spark: SparkResource, model: str) -> DataFrame:
    return spark.spark_session.read.parquet(f"{os.environ['SHOP_LAKE']}/{model}.parquet")
