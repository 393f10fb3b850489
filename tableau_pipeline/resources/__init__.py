"""Spark, Hyper, Tableau and the snapshots as Dagster resources, set up from the environment."""

from tableau_pipeline.resources.data_folder import (
    data_dir,
    in_object_store,
    shared_place,
    work_dir,
)
from tableau_pipeline.resources.environment import resources_from_env, tableau_project_root
from tableau_pipeline.resources.services import HyperResource, SparkResource, TableauServerResource
from tableau_pipeline.resources.snapshots import SnapshotIOManager
from tableau_pipeline.resources.unchanged import unchanged

__all__ = [
    "HyperResource",
    "SnapshotIOManager",
    "SparkResource",
    "TableauServerResource",
    "data_dir",
    "in_object_store",
    "resources_from_env",
    "shared_place",
    "tableau_project_root",
    "unchanged",
    "work_dir",
]
