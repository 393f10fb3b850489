import warnings

import dagster as dg

from tableau_pipeline.components.custom_batch import send_batch
from tableau_pipeline.components.file_drop import FileDrop
from tableau_pipeline.components.pipeline import TableauPipeline
from tableau_pipeline.components.published_datasource import PublishedDatasource

__all__ = ["FileDrop", "PublishedDatasource", "TableauPipeline", "send_batch"]

# Hide a warning that Dagster shows in every process, about a parameter that Dagster itself sets.
warnings.filterwarnings(
    "ignore", message="Parameter `execution_type` of function", category=dg.BetaWarning
)
