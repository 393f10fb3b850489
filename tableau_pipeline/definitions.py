import warnings
from pathlib import Path

import dagster as dg

from tableau_pipeline.components.loading import load_definitions

# Dagster itself causes this warning in every process, about a parameter that Dagster sets.
warnings.filterwarnings(
    "ignore", message="Parameter `execution_type` of function", category=dg.BetaWarning
)


@dg.definitions
def defs() -> dg.Definitions:
    """Load everything in `defs/`."""
    return load_definitions(Path(__file__).parent)
