import warnings
from pathlib import Path

import dagster as dg

# Dagster's own making: it warns of a parameter that it sets itself, in every process.
warnings.filterwarnings(
    "ignore", message="Parameter `execution_type` of function", category=dg.BetaWarning
)


@dg.definitions
def defs() -> dg.Definitions:
    """Everything below `defs/`."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
