"""What a host of a deployment runs: a model of this many rows, and its data source."""

import sys

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.resources import SparkResource, resources_from_env

DATASOURCE = {
    "name": "Shared Orders",
    "project": "Default",
    "tables": {"orders": {"refresh": {"diff": {"key": ["id"]}}}},
    # So few rows are as large as their update.
    "rebase": 1000,
}


def definitions(version: int) -> dg.Definitions:
    """Rows of which one in ten differs from version to version, and that become more."""

    @dg.asset(io_manager_key="snapshots")
    def orders(spark: SparkResource) -> DataFrame:
        rows = spark.spark_session.range(10_000 + version, numPartitions=2)
        amount = F.when(F.col("id") % 10 == version % 10, version).otherwise(0)
        return rows.withColumn("amount", amount.cast("decimal(10,2)"))

    declared = PublishedDatasource.from_attributes_dict(attributes=DATASOURCE)
    return dg.Definitions(
        assets=[orders, refresh_assets(declared.declaration, None)],
        resources=resources_from_env(),
        executor=dg.in_process_executor,
    )


if __name__ == "__main__":
    job = definitions(int(sys.argv[1])).resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.get() as instance:
        result = job.execute_in_process(instance=instance)
    *_, published = result.get_asset_materialization_events()
    metadata = published.materialization.metadata
    sys.stdout.write("\n" + str({key: entry.value for key, entry in metadata.items()}["summary"]))
