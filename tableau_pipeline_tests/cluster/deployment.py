"""A deployment on this machine: hosts with separate disks, and the services that they share."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import dagster as dg
import yaml

from tableau_pipeline.demo.sandbox_process import sandbox_process
from tableau_pipeline_tests.dagster_servers import WebServer, free_port, running, said
from tableau_pipeline_tests.deployment.object_stores import BUCKET, S3Server
from tableau_pipeline_tests.deployment.test_compose import SERVICES, dagster_yaml_with_logs
from tableau_pipeline_tests.postgresql import running_postgresql
from tableau_pipeline_tests.spark_cluster import DRIVER, SparkCluster, spark_cluster

# Prefixes of the variables that hosts do not inherit from this process: the developer may have
# set them for another deployment.
_OTHERS = ("AWS_", "DAGSTER_", "PIPELINE_", "PYSPARK_", "SPARK_", "TABLEAU_")

_NAMESPACE = ("unshare", "--map-root-user", "--mount")
# Mount an empty folder over each argument before "--"; then run the arguments after "--".
_HIDE = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit; shift; done; shift; exec "$@"'


def alone(disk: Path) -> list[str]:
    """Return a command prefix that hides the folders of all hosts, except `disk`, from the command.

    The result is empty if this machine does not permit namespaces. Then only environment variables
    separate the hosts.
    """
    if not can_be_hidden():
        return []
    others = [each for each in sorted(disk.parent.iterdir()) if each.is_dir() and each != disk]
    return [*_NAMESPACE, "sh", "-c", _HIDE, "sh", *map(str, others), "--"]


@cache
def can_be_hidden() -> bool:
    """Whether `unshare` can mount folders in a separate namespace here."""
    command = [*_NAMESPACE, "sh", "-c", "mount -t tmpfs none /tmp"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class Host:
    """A host: a folder as its disk, and environment variables that name no other folder.

    Attributes:
        work: the working directory of the host's processes.
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
        """Configure Spark so that the applications of this host have the host's name."""
        conf = self.folder / "spark"
        conf.mkdir()
        own = {"spark.app.name": self.name, "spark.master": master}
        text = "\n".join(f"{key} {value}" for key, value in own.items())
        (conf / "spark-defaults.conf").write_text(f"{DRIVER}{text}\n")
        # All hosts use the same Python, as if they ran one image.
        self.environment |= {"SPARK_CONF_DIR": str(conf), "PYSPARK_PYTHON": sys.executable}

    def serve(self, ports: Mapping[str, int]) -> None:
        """Write a workspace that lists the code servers, for the processes of this host."""
        servers = [
            {"grpc_server": {"host": "127.0.0.1", "port": port, "location_name": name}}
            for name, port in ports.items()
        ]
        (self.work / "workspace.yaml").write_text(yaml.safe_dump({"load_from": servers}))

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    @contextmanager
    def running(self, name: str, command: Sequence[str], *, ready: str) -> Generator[None]:
        """Run a program in this host's environment; enter the block once its log says `ready`."""
        program, *arguments = command
        here = [str(Path(sys.executable).with_name(program)), *arguments]
        log = self.log(name)
        command = [*alone(self.folder), *here]
        with running(command, folder=self.work, environment=self.environment, log=log) as process:
            said(process, log, ready)
            yield


def write(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


_APART = "each hidden from the processes of the other hosts"
_TOGETHER = "separated by environment variables only: `unshare --mount` is not permitted here"


@dataclass(frozen=True)
class Deployment:
    """A running deployment.

    Attributes:
        hosts: the hosts with a code server, by the name of their code location.
        instance: the deployment's Dagster instance, as this process opened it.
    """

    hosts: dict[str, Host]
    web: WebServer
    spark: SparkCluster
    instance: dg.DagsterInstance


@contextmanager
def deployment(folder: Path) -> Generator[Deployment]:
    """Start every process of the deployment, and end all of them when the block ends."""
    started = time.monotonic()

    def say(what: str, where: object = "") -> None:
        write(f"  {time.monotonic() - started:5.1f} s  {what:24}{where}")

    with ExitStack() as stack:
        store = stack.enter_context(S3Server(folder / "s3").running())
        say("S3 server", store.settings["AWS_ENDPOINT_URL"])
        postgresql = stack.enter_context(running_postgresql())
        say("PostgreSQL", f"127.0.0.1:{postgresql.port}")
        tableau = stack.enter_context(sandbox_process(folder / "sandbox", port=0))
        say("sandbox", tableau["TABLEAU_SERVER_URL"])
        # The web server and the daemon need only the database, and the bucket with the run logs.
        common = {**postgresql.settings, **store.settings}
        runs = {**common, **tableau, "PIPELINE_DATA_DIR": f"s3://{BUCKET}/pipeline"}
        hosts = [Host(folder / name, runs) for name in ("host-a", "host-b")]
        daemon, web = (Host(folder / name, common) for name in ("daemon", "web"))
        instance = stack.enter_context(_here(Host(folder / "observer", runs)))
        # Each process that starts below sees only its own disk.
        spark = stack.enter_context(spark_cluster(folder, variables=store.settings, start=alone))
        say("Spark, two workers", spark.url)
        ports = {host.name: free_port() for host in hosts}
        for host in hosts:
            host.use_spark(spark.url)
            stack.enter_context(_code_server(host, ports[host.name]))
            say(f"code server on {host.name}", f"127.0.0.1:{ports[host.name]}")
        for host in (daemon, web):
            host.serve(ports)
        stack.enter_context(_daemon(daemon))
        say("daemon")
        server = stack.enter_context(_web_server(web))
        say("web server", server.url)
        say("Disks", _APART if can_be_hidden() else _TOGETHER)
        yield Deployment({host.name: host for host in hosts}, server, spark, instance)


@contextmanager
def _here(host: Host) -> Generator[dg.DagsterInstance]:
    """Turn this process into one more host, which reads the results of the other hosts."""
    os.environ.clear()
    os.environ.update(host.environment)
    tempfile.tempdir = host.environment["TMPDIR"]
    # Open the instance before other processes do: the first process creates Dagster's tables.
    with dg.DagsterInstance.get() as instance:
        yield instance


def _code_server(host: Host, port: int) -> AbstractContextManager[None]:
    command = {"0.0.0.0": "127.0.0.1", "4000": str(port)}
    words = [command.get(word, word) for word in SERVICES["code"]["command"]]
    return host.running("code", words, ready="Started Dagster code server")


def _daemon(host: Host) -> AbstractContextManager[None]:
    command = ["dagster-daemon", "run", "--workspace", "workspace.yaml"]
    return host.running("daemon", command, ready="")


@contextmanager
def _web_server(host: Host) -> Generator[WebServer]:
    port = free_port()
    command = ["dagster-webserver", "--host", "127.0.0.1", "--port", str(port)]
    with host.running("web", [*command, "--workspace", "workspace.yaml"], ready="Serving"):
        yield WebServer(f"http://127.0.0.1:{port}")
