"""The job that publishes files without a model."""

import dagster as dg

from tableau_pipeline.components.publish_file import publish_file


@dg.definitions
def files() -> dg.Definitions:
    """The job, for the launchpad, `dg launch` and sensors."""
    return dg.Definitions(jobs=[publish_file])
