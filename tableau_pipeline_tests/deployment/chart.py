"""What Dagster's Helm chart makes of deploy/kubernetes/values.yaml.

No package brings the chart along, so this follows its templates by hand.
"""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from tableau_pipeline_tests.conftest import ROOT

VALUES: dict[str, Any] = yaml.safe_load((ROOT / "deploy/kubernetes/values.yaml").read_text("utf-8"))
(LOCATION,) = VALUES["dagster-user-deployments"]["deployments"]
IMAGE = "{repository}:{tag}".format_map(LOCATION["image"])


def dagster_yaml(values: Mapping[str, Any]) -> dict[str, Any]:
    """The instance, without the schedules' and the event log's storage: they are the run's."""
    daemon, database = values["dagsterDaemon"], values["postgresql"]
    return {
        "run_launcher": {
            "module": "dagster_k8s",
            "class": values["runLauncher"]["type"],
            "config": _launcher(values),
        },
        "run_storage": {
            "module": "dagster_postgres.run_storage",
            "class": "PostgresRunStorage",
            "config": {
                "postgres_db": {
                    "username": database["postgresqlUsername"],
                    "password": {"env": "DAGSTER_PG_PASSWORD"},
                    "hostname": database["postgresqlHost"],
                    "db_name": database["postgresqlDatabase"],
                    "port": database["service"]["port"],
                    "params": {},
                    "scheme": database["postgresqlScheme"],
                }
            },
        },
        "run_coordinator": {
            "module": "dagster._core.run_coordinator",
            "class": "QueuedRunCoordinator",
            "config": {"dequeue_use_threads": True, "dequeue_num_workers": 4},
        },
        "compute_logs": {
            "module": "dagster_aws.s3.compute_log_manager",
            "class": values["computeLogManager"]["type"],
            "config": snake(values["computeLogManager"]["config"]["s3ComputeLogManager"]),
        },
        "run_monitoring": snake(daemon["runMonitoring"]),
        "run_retries": snake(daemon["runRetries"]),
        "concurrency": snake({key: values["concurrency"][key] for key in ("pools", "runs")}),
        "python_logs": snake(values["pythonLogs"]),
        "telemetry": values["telemetry"],
        **values["additionalInstanceConfig"],
    }


def _launcher(values: Mapping[str, Any]) -> dict[str, Any]:
    own = values["runLauncher"]["config"]["k8sRunLauncher"]
    return {
        "load_incluster_config": True,
        "job_namespace": "dagster",
        "image_pull_policy": "Always",
        "service_account_name": "dagster",
        "dagster_home": values["global"]["dagsterHome"],
        "instance_config_map": "dagster-instance",
        "postgres_password_secret": values["global"]["postgresqlSecretName"],
        "run_k8s_config": {_snake(key): below for key, below in own["runK8sConfig"].items()},
    }


def container_context(location: Mapping[str, Any]) -> dict[str, Any]:
    """What the runs of a code location are given of its values."""
    subchart = "dagster-dagster-user-deployments"
    return {
        "k8s": {
            "image_pull_policy": location["image"]["pullPolicy"],
            "env_config_maps": [f"{subchart}-{location['name']}-user-env"],
            "env_secrets": [each["name"] for each in location["envSecrets"]],
            "volume_mounts": location["volumeMounts"],
            "volumes": location["volumes"],
            "resources": location.get("resources", {}),
            "namespace": "dagster",
            "service_account_name": f"{subchart}-user-deployments",
            "env": location["env"],
            "run_k8s_config": {"pod_spec_config": {"automount_service_account_token": True}},
        }
    }


def snake(values: Any) -> Any:
    """Values with Dagster's names instead of the chart's."""
    if isinstance(values, dict):
        return {_snake(key): snake(below) for key, below in values.items()}
    return values


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
