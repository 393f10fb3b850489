import os
from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from tableau_pipeline.core.project_root import root_from
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.resources.data_folder import shared_place
from tableau_pipeline.resources.services import HyperResource, SparkResource, TableauServerResource
from tableau_pipeline.resources.snapshots import SnapshotIOManager


def resources_from_env(*, keep_days: float = 14) -> dict[str, Any]:
    """Return every resource of the pipeline, set up from the environment.

    Keys: "spark", "hyper", "tableau", "snapshots". No variable is required here.

    Args:
        keep_days: see `SnapshotIOManager`.

    Raises:
        RefusedError: a variable has an invalid value.
    """
    # A wrong one is to be found when the location is loaded, not by the first refresh.
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
            # The web UI never shows the value of an EnvVar.
            known = _CHECKED.get(name)
            tableau[name] = known(variable, value) if known else dg.EnvVar(variable)
    return {
        "spark": spark,
        "hyper": HyperResource(memory_limit=os.environ.get("HYPER_MEMORY_LIMIT") or "50%"),
        "tableau": TableauServerResource(**tableau),
        "snapshots": SnapshotIOManager(
            root=str(shared_place("snapshots")),
            spark=spark,
            keep_days=keep_days,
            cache_gb=_amount("PIPELINE_CACHE_GB", os.environ.get("PIPELINE_CACHE_GB") or "10"),
        ),
    }


def tableau_project_root() -> str:
    """Return TABLEAU_PROJECT_ROOT, "" if it is not set.

    Raises:
        RefusedError: it is not the path of a project.
    """
    return root_from(os.environ.get("TABLEAU_PROJECT_ROOT", ""))


def _seconds(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) == 0:
        raise RefusedError(f"{name} is {value!r}: set it to a number of seconds above 0.")
    return int(value)


def _amount(name: str, value: str) -> float:
    try:
        amount = float(value)
    except ValueError:
        amount = -1
    if not 0 <= amount < float("inf"):
        raise RefusedError(f"{name} is {value!r}: set it to a number of GB, 0 or more.")
    return amount


def _switch(name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise RefusedError(f"{name} is {value!r}: set it to true or false.")
    return value == "true"


_CHECKED: Mapping[str, Callable[[str, str], Any]] = {
    "job_timeout": _seconds,
    "queue_timeout": _seconds,
    "takeover": _switch,
}
