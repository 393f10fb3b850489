"""A run of which a Spark cluster computes the model, and whose tasks can be held."""

import os
import sys
import time
from pathlib import Path

import dagster as dg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.resources import SparkResource, resources_from_env
from tableau_pipeline_tests.deployment.hosts.process import Stop, declaration, stop_at

MODEL = "counted"
TASKS, ROWS = 4, 10_000
# The variable that names a file: as long as that is there, no task gets beyond its first row.
HOLD = "HOLD"
# The variable that names a function, if any, at which the process of the run stops itself.
STOP = "STOP"


def definitions() -> dg.Definitions:
    """The model and its data source."""
    hold = os.environ[HOLD]

    def doubled(number: int) -> int:
        if number % (ROWS // TASKS) == 0 and Path(hold).exists():
            Path(f"{hold} {os.getpid()}").touch()
            while Path(hold).exists():
                time.sleep(0.05)
        return number * 2

    @dg.asset(name=MODEL, io_manager_key="snapshots")
    def counted(spark: SparkResource) -> DataFrame:
        rows = spark.spark_session.range(ROWS, numPartitions=TASKS)
        return rows.withColumn("amount", F.udf(doubled, "long")("id"))

    return dg.Definitions(
        assets=[counted, refresh_assets(declaration(MODEL), None)],
        resources=resources_from_env(),
    )


if __name__ == "__main__":
    if place := os.environ[STOP]:
        stop_at(Stop(place))
    job = definitions().resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.get() as instance:
        sys.exit(not job.execute_in_process(instance=instance).success)
