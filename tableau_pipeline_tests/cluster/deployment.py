"""Everything that a deployment on several hosts consists of, on this machine."""

import os
import tempfile
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from tableau_pipeline.demo.sandbox_process import sandbox_process
from tableau_pipeline_tests.cluster.hosts import Host, alone, can_be_hidden, write
from tableau_pipeline_tests.cluster.transfers import Transfers
from tableau_pipeline_tests.dagster_servers import WebServer
from tableau_pipeline_tests.deployment.compose import SERVICES
from tableau_pipeline_tests.deployment.s3 import BUCKET, S3Server
from tableau_pipeline_tests.ports import free_port
from tableau_pipeline_tests.postgresql import running_postgresql
from tableau_pipeline_tests.spark_cluster import SparkCluster, spark_cluster

_APART = "each hidden from the processes of the other hosts"
_TOGETHER = "apart by the environment only: hiding them is not permitted here (unshare --mount)"


@dataclass(frozen=True)
class Deployment:
    """A running deployment.

    Attributes:
        hosts: those with a code server, by the name of their code location.
        instance: Dagster's history, as this process sees it.
    """

    hosts: dict[str, Host]
    web: WebServer
    spark: SparkCluster
    transfers: Transfers
    instance: dg.DagsterInstance


@contextmanager
def deployment(folder: Path) -> Generator[Deployment]:
    """Start everything; end it with the block."""
    started = time.monotonic()

    def say(what: str, where: object = "") -> None:
        write(f"  {time.monotonic() - started:5.1f} s  {what:24}{where}")

    with ExitStack() as stack:
        store = S3Server(folder / "s3")
        stack.callback(store.stop)
        store.start()
        say("S3 server", store.settings["AWS_ENDPOINT_URL"])
        postgresql = stack.enter_context(running_postgresql())
        say("PostgreSQL", f"127.0.0.1:{postgresql.port}")
        tableau = stack.enter_context(sandbox_process(folder / "sandbox", port=0))
        say("sandbox", tableau["TABLEAU_SERVER_URL"])
        # The web server and the daemon need no more: the logs of runs are in the bucket.
        common = {**postgresql.settings, **store.settings}
        runs = {**common, **tableau, "PIPELINE_DATA_DIR": f"s3://{BUCKET}/pipeline"}
        hosts = [Host(folder / name, runs) for name in ("host-a", "host-b")]
        daemon, web = (Host(folder / name, common) for name in ("daemon", "web"))
        instance = stack.enter_context(_here(Host(folder / "observer", runs)))
        # From here on, each process sees its own disk only.
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
        transfers = Transfers(store.folder)
        yield Deployment({host.name: host for host in hosts}, server, spark, transfers, instance)


@contextmanager
def _here(host: Host) -> Generator[dg.DagsterInstance]:
    """This process as one more host, which looks at what the others did."""
    os.environ.clear()
    os.environ.update(host.environment)
    tempfile.tempdir = host.environment["TMPDIR"]
    # The first one to come makes Dagster's tables.
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
