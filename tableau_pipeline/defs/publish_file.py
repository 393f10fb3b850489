"""Files that no model makes."""

import dagster as dg

from tableau_pipeline.components.publish_file import publish_file


@dg.definitions
def files() -> dg.Definitions:
    """A job for the launchpad, for `dg launch`, and for sensors."""
    return dg.Definitions(jobs=[publish_file])
