"""Checks of deploy/kubernetes/ that need neither a cluster nor Dagster's chart."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import kubernetes_validate
import pytest
import yaml
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster_cloud_cli.config.models import load_dagster_cloud_yaml

from tableau_pipeline.hyper.process import limit_in_bytes
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.deployment.test_compose import (
    SECRET,
    SERVICES,
    dagster_yaml_with_logs,
    text,
)

VALUES: dict[str, Any] = yaml.safe_load((ROOT / "deploy/kubernetes/values.yaml").read_text("utf-8"))
(LOCATION,) = VALUES["dagster-user-deployments"]["deployments"]
IMAGE = "{repository}:{tag}".format_map(LOCATION["image"])


def dagster_yaml() -> dict[str, Any]:
    """The instance that the chart's templates make of our values, without the chart's defaults."""
    launcher = VALUES["runLauncher"]["config"]["k8sRunLauncher"]["runK8sConfig"]
    logs = VALUES["computeLogManager"]
    return {
        "run_launcher": {
            "module": "dagster_k8s",
            "class": VALUES["runLauncher"]["type"],
            "config": {
                "job_namespace": "dagster",
                "image_pull_policy": "Always",
                "service_account_name": "dagster",
                "dagster_home": VALUES["global"]["dagsterHome"],
                "instance_config_map": "dagster-instance",
                "postgres_password_secret": VALUES["global"]["postgresqlSecretName"],
                "run_k8s_config": {_snake(key): below for key, below in launcher.items()},
            },
        },
        "compute_logs": {
            "module": "dagster_aws.s3.compute_log_manager",
            "class": logs["type"],
            "config": snake(logs["config"]["s3ComputeLogManager"]),
        },
        "run_monitoring": snake(VALUES["dagsterDaemon"]["runMonitoring"]),
        "run_retries": snake(VALUES["dagsterDaemon"]["runRetries"]),
        "concurrency": snake({key: VALUES["concurrency"][key] for key in ("pools", "runs")}),
        "python_logs": snake(VALUES["pythonLogs"]),
        "telemetry": VALUES["telemetry"],
        **VALUES["additionalInstanceConfig"],
    }


def container_context(location: Mapping[str, Any]) -> dict[str, Any]:
    """The container context that the chart makes for runs of a code location."""
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
    """Values with Dagster's names in place of the chart's names."""
    if isinstance(values, dict):
        return {_snake(key): snake(below) for key, below in values.items()}
    return values


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


FOLDER = ROOT / "deploy" / "kubernetes"
GIB = 2**30
KUBECONFIG = {
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    "current-context": "none",
    "users": [{"name": "none", "user": {}}],
}
(HYBRID,) = load_dagster_cloud_yaml((FOLDER / "dagster_cloud.yaml").read_text("utf-8")).locations
LOCATIONS: dict[str, tuple[str | None, Any]] = {
    "chart": (IMAGE, container_context(LOCATION)),
    "hybrid": (HYBRID.image, HYBRID.container_context),
}


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """The instance that the chart configures, except its PostgreSQL and its way to a cluster."""
    settings = dagster_yaml()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))
    launcher = settings["run_launcher"]["config"]
    launcher |= {"load_incluster_config": False, "kubeconfig_file": str(kubeconfig)}
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=settings) as instance:
        yield instance


@pytest.fixture(params=LOCATIONS)
def job(request: pytest.FixtureRequest, instance: dg.DagsterInstance) -> dict[str, Any]:
    """The Job of a run, as Dagster sends it to Kubernetes."""
    # Importing these modules takes each process of the tests half a second.
    from dagster_k8s import K8sRunLauncher
    from dagster_k8s.job import construct_dagster_k8s_job
    from kubernetes.client import ApiClient

    image, context = LOCATIONS[request.param]
    origin = JobPythonOrigin(
        job_name="publish_file",
        repository_origin=RepositoryPythonOrigin(
            executable_path="python",
            code_pointer=ModuleCodePointer("tableau_pipeline.definitions", "defs"),
            container_image=image,
            container_context=context,
        ),
    )
    run = dg.DagsterRun(job_name="publish_file", run_id=str(uuid4()), job_code_origin=origin)
    launcher = instance.run_launcher
    assert isinstance(launcher, K8sRunLauncher)
    given = launcher.get_container_context_for_run(run)
    name = f"dagster-run-{run.run_id}"
    built = construct_dagster_k8s_job(
        given.get_k8s_job_config(image, launcher),
        args=["dagster", "api", "execute_run"],
        job_name=name,
        pod_name=name,
        component="run_worker",
        user_defined_k8s_config=given.run_k8s_config,
    )
    return ApiClient().sanitize_for_serialization(built)


def container(job: Mapping[str, Any]) -> dict[str, Any]:
    (only,) = job["spec"]["template"]["spec"]["containers"]
    return only


def variables(job: Mapping[str, Any]) -> dict[str, str | None]:
    return {each["name"]: each.get("value") for each in container(job)["env"]}


def test_chart_has_the_version_of_dagster():
    """Prevents: the web server has another version of Dagster than the runs."""
    (version,) = re.findall(r"^dagster==(.*)$", text("constraints.txt"), re.MULTILINE)
    assert f"Dagster's Helm chart, version {version}:" in text("deploy/kubernetes/values.yaml")
    assert f"--version {version} " in text("docs/how-to/kubernetes.md")


@pytest.mark.slow
def test_instance_is_that_of_other_deployments(instance: dg.DagsterInstance):
    """Prevents: a deployment on Kubernetes lacks a pool or a retry of other deployments."""
    ours = dagster_yaml_with_logs()
    theirs = dagster_yaml()
    monitoring = theirs.pop("run_monitoring")
    assert ours.pop("run_monitoring").items() <= monitoring.items()
    del ours["storage"]
    assert {key: theirs[key] for key in ours} == ours
    assert monitoring["max_resume_run_attempts"] == 0
    assert type(instance.compute_log_manager).__name__ == "S3ComputeLogManager"


def test_settings_of_dagster_plus_are_those_of_other_deployments():
    """Prevents: a deployment on Dagster+ lacks a pool or a retry of other deployments."""
    settings = yaml.safe_load(text("deploy/kubernetes/deployment_settings.yaml"))
    theirs = dagster_yaml()
    for section, given in settings.items():
        assert given.items() <= theirs[section].items(), section
    assert settings["concurrency"] == theirs["concurrency"]


def test_job_keeps_to_the_schema(job: dict[str, Any]):
    """Prevents: Kubernetes refuses the Job of a run."""
    kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
    assert job["spec"]["backoffLimit"] == 0, "Dagster restarts runs, and Kubernetes does not"


def test_volume_keeps_to_the_schema(job: dict[str, Any]):
    """Prevents: runs wait for an undeclared volume, or cannot write to their volume."""
    claim = yaml.safe_load(text("deploy/kubernetes/data.yaml"))
    kubernetes_validate.validate(claim, kubernetes_validate.latest_version(), strict=True)
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    pod = job["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounts = {each["mountPath"]: each["name"] for each in container(job)["volumeMounts"]}
    assert set(mounts.values()) == volumes.keys()
    data = volumes[mounts[variables(job)["PIPELINE_DATA_DIR"] or ""]]
    assert data["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert "emptyDir" in volumes[mounts["/tmp"]]


def test_memory_is_enough(job: dict[str, Any]):
    """Prevents: Kubernetes kills a run although heap and hyperd keep to their memory limits."""
    from kubernetes.utils import parse_quantity

    given = variables(job)
    heap = limit_in_bytes(given["SPARK_DRIVER_MEMORY"] or "")
    hyperd = limit_in_bytes(given["HYPER_MEMORY_LIMIT"] or "")
    resources = container(job)["resources"]
    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    limit = parse_quantity(resources["limits"]["memory"])
    # A tenth of the heap is Spark's allowance for the rest of the JVM; Python needs the GiB.
    assert limit - heap - hyperd >= heap // 10 + GIB
    assert resources["limits"]["cpu"], "local[*] would take all processors of the node"


def test_secrets_by_name_only(job: dict[str, Any]):
    """Prevents: a password is in the repository, or a run lacks a password."""
    for name, value in variables(job).items():
        assert not SECRET.search(name) or value is None, name
    given = {each["secretRef"]["name"] for each in container(job)["envFrom"] if "secretRef" in each}
    assert "tableau-pipeline-tableau" in given
    # Runs of the chart have a second secret, because they write their logs to the object store.
    assert given <= {"tableau-pipeline-tableau", "tableau-pipeline-object-store"}
    (password,) = [each for each in container(job)["env"] if each["name"] == "DAGSTER_PG_PASSWORD"]
    assert password["valueFrom"]["secretKeyRef"] == {
        "name": "tableau-pipeline-postgresql",
        "key": "postgresql-password",
    }
    assert "postgresqlPassword" not in json.dumps(VALUES)
    assert not VALUES["generatePostgresqlPasswordSecret"]


def test_image_is_ours(job: dict[str, Any]):
    """Prevents: a code server starts differently than in compose.yaml, or runs as root."""
    command = SERVICES["code"]["command"]
    assert command[-2:] == LOCATION["dagsterApiGrpcArgs"]
    assert HYBRID.code_source
    assert command[-1] == HYBRID.code_source.module_name
    assert HYBRID.image == IMAGE == container(job)["image"]
    dockerfile = text("Dockerfile")
    (user,) = re.findall(r"^USER (\d+)$", dockerfile, re.MULTILINE)
    assert container(job)["securityContext"]["runAsUser"] == int(user)
    assert job["spec"]["template"]["spec"]["securityContext"]["fsGroup"] == int(user)
    assert f"DAGSTER_HOME={VALUES['global']['dagsterHome']} " in dockerfile


def test_extras_of_the_image_exist():
    """Prevents: an image lacks a package that a run in a cluster imports."""
    project = tomllib.loads(text("pyproject.toml"))["project"]
    guides = ("docs/how-to/kubernetes.md", "docs/how-to/several-hosts.md")
    found = re.findall(r"EXTRAS=([\w,-]+)", "".join(map(text, ("Dockerfile", *guides))))
    asked = {extra for each in found for extra in each.split(",")}
    assert asked == {"aws", "postgres", "kubernetes", "dagster-plus"}
    assert asked <= project["optional-dependencies"].keys()


def test_nobody_reaches_the_web_server_from_outside():
    """Prevents: a web server without a password is open to the internet."""
    assert VALUES["dagsterWebserver"]["service"]["type"] == "ClusterIP"
    assert not VALUES["ingress"]["enabled"]
