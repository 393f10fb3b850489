import warnings
from pathlib import Path

import dagster as dg

from tableau_pipeline.components.loading import load_definitions

# Dagster's own making: it warns of a parameter that it sets itself, in every process.
warnings.filterwarnings(
    "ignore", message="Parameter `execution_type` of function", category=dg.BetaWarning
)


@dg.definitions
def defs() -> dg.Definitions:
    """Everything below `defs/`."""
    return load_definitions(Path(__file__).parent)
