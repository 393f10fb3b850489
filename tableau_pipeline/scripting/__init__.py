"""Refresh data sources from a Python script, without Dagster.

The functions that write models with Spark are in `tableau_pipeline.scripting.spark`: a process that
only refreshes needs no Spark.
"""

from tableau_pipeline.core.declaration import (
    Append,
    Declaration,
    Diff,
    Feed,
    Guard,
    Partitions,
    Reconcile,
    ReplaceAll,
    Republish,
    Retain,
    Table,
)
from tableau_pipeline.core.lake_table import InCatalog, LakeTable
from tableau_pipeline.core.server import Timeouts
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.hyper.build import Relationship
from tableau_pipeline.metadata.fields import Calculation, FieldMetadata, Members, MetadataPolicy
from tableau_pipeline.publishing.session import (
    ConnectedApp,
    Password,
    PersonalAccessToken,
    signed_in,
)
from tableau_pipeline.refresh.plan import Accept, Options
from tableau_pipeline.refresh.report import Report
from tableau_pipeline.scripting.refresh_script import refresh

__all__ = [
    "Accept",
    "Append",
    "Calculation",
    "ConnectedApp",
    "Declaration",
    "Diff",
    "Feed",
    "FieldMetadata",
    "Guard",
    "InCatalog",
    "LakeTable",
    "Members",
    "MetadataPolicy",
    "Options",
    "Partitions",
    "Password",
    "PersonalAccessToken",
    "Reconcile",
    "RefreshError",
    "RefusedError",
    "Relationship",
    "ReplaceAll",
    "Report",
    "Republish",
    "Retain",
    "Table",
    "Timeouts",
    "refresh",
    "signed_in",
]
