"""The Dagster resources for Spark, Hyper, Tableau and snapshots, set up from the environment."""

import os
from typing import Any

import dagster as dg
from pydantic import ValidationError

from tableau_pipeline.errors import SettingError
from tableau_pipeline.resources.services import HyperResource, SparkResource, TableauServerResource
from tableau_pipeline.resources.snapshots import SnapshotIOManager
from tableau_pipeline.scripting.environment import (
    data_dir,
    in_object_store,
    shared_place,
    tableau_project_root,
    work_dir,
)

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
    "work_dir",
]

_NOT_TEXTS = ("job_timeout", "queue_timeout", "arrival_timeout", "takeover")


def resources_from_env(*, keep_days: float = 14) -> dict[str, Any]:
    """Return all resources of the pipeline, set up from environment variables.

    The keys are "spark", "hyper", "tableau" and "snapshots". A missing variable is no error here,
    but only when a step needs it.

    Args:
        keep_days: see `SnapshotIOManager`.

    Raises:
        RefusedError: a variable has an invalid value.
    """
    # Check TABLEAU_PROJECT_ROOT when the code location loads, and not only at the first refresh.
    tableau_project_root()
    spark = SparkResource(
        **{
            name: os.environ.get(f"SPARK_{name.upper()}") or None
            for name in ("master", "remote", "driver_memory")
        }
    )
    tableau: dict[str, Any] = {}
    for name in TableauServerResource.model_fields:
        variable = f"TABLEAU_{name.upper()}"
        if value := os.environ.get(variable):
            # Pass texts as EnvVars, because the web UI never shows the value of an EnvVar. Pass
            # numbers and flags as plain values, because the value of an EnvVar is always a text.
            tableau[name] = value if name in _NOT_TEXTS else dg.EnvVar(variable)
    snapshots: dict[str, Any] = {"root": str(shared_place("snapshots")), "keep_days": keep_days}
    if value := os.environ.get("PIPELINE_CACHE_GB"):
        snapshots["cache_gb"] = value
    try:
        return {
            "spark": spark,
            "hyper": HyperResource(memory_limit=os.environ.get("HYPER_MEMORY_LIMIT") or "50%"),
            "tableau": TableauServerResource(**tableau),
            "snapshots": SnapshotIOManager(spark=spark, **snapshots),
        }
    except ValidationError as error:
        details = error.errors()[0]
        name = str(details["loc"][0]).upper()
        raise SettingError(
            f"{'PIPELINE' if name == 'CACHE_GB' else 'TABLEAU'}_{name} is {details['input']!r}: "
            f"{details['msg']}.",
        ) from None
