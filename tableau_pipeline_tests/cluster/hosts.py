"""Hosts of a deployment, each with a disk of its own."""

import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import yaml

from tableau_pipeline_tests.dagster_servers import running, said
from tableau_pipeline_tests.deployment.compose import dagster_yaml_with_logs
from tableau_pipeline_tests.deployment.s3 import BUCKET
from tableau_pipeline_tests.spark_cluster import DRIVER

# What the person who starts the cluster has set for another deployment.
_OTHERS = ("AWS_", "DAGSTER_", "PIPELINE_", "PYSPARK_", "SPARK_", "TABLEAU_")

_NAMESPACE = ("unshare", "--map-root-user", "--mount")
# Mounts an empty folder over each of the first arguments, up to "--"; then becomes the command.
_HIDE = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit; shift; done; shift; exec "$@"'


def alone(disk: Path) -> list[str]:
    """Return the start of a command that sees this folder, and the ones beside it empty.

    [] if such namespaces are not permitted here; then hosts differ by their environments only.
    """
    if not can_be_hidden():
        return []
    others = [each for each in sorted(disk.parent.iterdir()) if each.is_dir() and each != disk]
    return [*_NAMESPACE, "sh", "-c", _HIDE, "sh", *map(str, others), "--"]


@cache
def can_be_hidden() -> bool:
    """Whether this is Linux, and we may mount folders in a namespace of our own."""
    command = [*_NAMESPACE, "sh", "-c", "mount -t tmpfs none /tmp"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class Host:
    """A host: a disk, and an environment that names nothing outside of it.

    Attributes:
        work: the folder in which its processes run.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.name = folder.name
        self.folder = folder
        self.work = folder / "work"
        for name in ("dagster_home", "home", "tmp", "work"):
            (folder / name).mkdir(parents=True)
        dagster = dagster_yaml_with_logs()
        dagster["compute_logs"]["config"]["bucket"] = BUCKET
        (folder / "dagster_home" / "dagster.yaml").write_text(yaml.safe_dump(dagster))
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_OTHERS)}
        self.environment = {
            **kept,
            "DAGSTER_HOME": str(folder / "dagster_home"),
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "SPARK_LOCAL_DIRS": str(folder / "tmp"),
            **settings,
        }

    def use_spark(self, master: str) -> None:
        """Configure Spark, which then knows this host's runs by its name."""
        conf = self.folder / "spark"
        conf.mkdir()
        own = {"spark.app.name": self.name, "spark.master": master}
        text = "\n".join(f"{key} {value}" for key, value in own.items())
        (conf / "spark-defaults.conf").write_text(f"{DRIVER}{text}\n")
        # Every host has the same Python, as if from one image.
        self.environment |= {"SPARK_CONF_DIR": str(conf), "PYSPARK_PYTHON": sys.executable}

    def serve(self, ports: Mapping[str, int]) -> None:
        """Name the code servers in the workspace of this host's processes."""
        servers = [
            {"grpc_server": {"host": "127.0.0.1", "port": port, "location_name": name}}
            for name, port in ports.items()
        ]
        (self.work / "workspace.yaml").write_text(yaml.safe_dump({"load_from": servers}))

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    @contextmanager
    def running(self, name: str, command: Sequence[str], *, ready: str) -> Generator[None]:
        """A program of this environment, once it has said that it is ready."""
        program, *arguments = command
        here = [str(Path(sys.executable).with_name(program)), *arguments]
        log = self.log(name)
        command = [*alone(self.folder), *here]
        with running(command, folder=self.work, environment=self.environment, log=log) as process:
            said(process, log, ready)
            yield


def write(text: str) -> None:
    """Show a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
