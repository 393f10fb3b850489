from pathlib import Path

import dagster as dg

from tableau_pipeline.components.loading import load_definitions


@dg.definitions
def defs() -> dg.Definitions:
    """Load the definitions in `defs/`."""
    return load_definitions(Path(__file__).parent)
