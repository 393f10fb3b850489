import os
from typing import Any

import dagster as dg

from tableau_pipeline.errors import RefusedError
from tableau_pipeline.resources.data_folder import snapshots_location
from tableau_pipeline.resources.hyper import HyperResource
from tableau_pipeline.resources.snapshots import SnapshotIOManager
from tableau_pipeline.resources.spark import SparkResource
from tableau_pipeline.resources.tableau import JOB_SECONDS, QUEUE_SECONDS, TableauServerResource


def resources_from_env() -> dict[str, Any]:
    """Return every resource of the pipeline, set up from the environment.

    Keys: "spark", "hyper", "tableau", "snapshots". No variable is required here.

    Raises:
        RefusedError: a variable has an invalid value.
    """
    spark = SparkResource(
        master=os.environ.get("SPARK_MASTER") or None,
        remote=os.environ.get("SPARK_REMOTE") or None,
        driver_memory=os.environ.get("SPARK_DRIVER_MEMORY") or None,
    )
    return {
        "spark": spark,
        "hyper": HyperResource(memory_limit=os.environ.get("HYPER_MEMORY_LIMIT") or "50%"),
        "tableau": TableauServerResource(
            server_url=_env("TABLEAU_SERVER_URL"),
            site=os.environ.get("TABLEAU_SITE", ""),
            token_name=_env("TABLEAU_TOKEN_NAME"),
            token_value=_env("TABLEAU_TOKEN_VALUE"),
            username=_env("TABLEAU_USERNAME"),
            password=_env("TABLEAU_PASSWORD"),
            connected_app_client_id=_env("TABLEAU_CONNECTED_APP_CLIENT_ID"),
            connected_app_secret_id=_env("TABLEAU_CONNECTED_APP_SECRET_ID"),
            connected_app_secret_value=_env("TABLEAU_CONNECTED_APP_SECRET_VALUE"),
            ca_bundle=_env("TABLEAU_CA_BUNDLE"),
            job_timeout=_seconds("TABLEAU_JOB_TIMEOUT", default=JOB_SECONDS),
            queue_timeout=_seconds("TABLEAU_QUEUE_TIMEOUT", default=QUEUE_SECONDS),
            takeover=_switch("TABLEAU_TAKEOVER"),
        ),
        "snapshots": SnapshotIOManager(
            root=snapshots_location(),
            spark=spark,
            cache_gb=_amount("PIPELINE_CACHE_GB", default=10),
        ),
    }


def _env(name: str) -> dg.EnvVar | None:
    """Return an EnvVar, so that the web UI never shows the value; None if it is unset."""
    return dg.EnvVar(name) if os.environ.get(name) else None


def _seconds(name: str, *, default: int) -> int:
    value = os.environ.get(name) or str(default)
    if not value.isdecimal() or int(value) == 0:
        raise RefusedError(f"{name} is {value!r}: set it to a number of seconds above 0.")
    return int(value)


def _amount(name: str, *, default: float) -> float:
    value = os.environ.get(name) or str(default)
    try:
        amount = float(value)
    except ValueError:
        amount = -1
    if not 0 <= amount < float("inf"):
        raise RefusedError(f"{name} is {value!r}: set it to a number of GB, 0 or more.")
    return amount


def _switch(name: str) -> bool:
    value = os.environ.get(name) or "false"
    if value not in ("true", "false"):
        raise RefusedError(f"{name} is {value!r}: set it to true or false.")
    return value == "true"
