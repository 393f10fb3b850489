"""Resources from the environment, and the executor of runs."""

import os

import dagster as dg

from tableau_pipeline.resources import resources_from_env


@dg.definitions
def resources() -> dg.Definitions:
    """Set up the resources; models are stored as snapshots by default."""
    from_env = resources_from_env()
    return dg.Definitions(
        resources={**from_env, "io_manager": from_env["snapshots"]},
        # One JVM for all Spark steps of a run. Spark Connect needs none: its steps may run in
        # processes of their own, Dagster's default.
        executor=None if os.environ.get("SPARK_REMOTE") else dg.in_process_executor,
    )
