"""Spark, Hyper, Tableau and the snapshots, from the environment."""

import dagster as dg

from tableau_pipeline.resources import resources_from_env


@dg.definitions
def resources() -> dg.Definitions:
    """Models are stored as snapshots; one JVM for all Spark steps of a run."""
    from_env = resources_from_env()
    return dg.Definitions(
        resources={**from_env, "io_manager": from_env["snapshots"]},
        executor=dg.in_process_executor,
    )
