"""Spark's standalone cluster: a master and two workers, each a process of its own."""

import os
import re
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pyspark

from tableau_pipeline_tests.dagster_servers import running
from tableau_pipeline_tests.waiting import until

HOST = "127.0.0.1"
# What a driver needs so that both workers take part, each with one executor.
DRIVER = f"""
spark.driver.host                                  {HOST}
spark.executor.memory                              512m
spark.scheduler.minRegisteredResourcesRatio        1.0
spark.scheduler.maxRegisteredResourcesWaitingTime  60s
"""
_HOME = Path(pyspark.__file__).parent
_COMMON = ("--host", HOST, "--port", "0", "--webui-port", "0")
_NOTHING_ELSE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class SparkCluster:
    """A running cluster.

    Attributes:
        url: the URL of the master.
        log: the log of the master.
        workers: the folder of each worker.
    """

    url: str
    log: Path
    workers: tuple[Path, ...]

    def applications(self) -> dict[str, str]:
        """The name of each application that has registered so far, by its id."""
        found = re.findall(r"Registered app (.*) with ID (\S+)", self.log.read_text())
        return {id_: name for name, id_ in found}

    def ran_on(self, application: str) -> list[str]:
        """The workers that had an executor of an application."""
        return [each.name for each in self.workers if (each / "work" / application).exists()]


@contextmanager
def spark_cluster(
    folder: Path, *, variables: Mapping[str, str] = _NOTHING_ELSE
) -> Generator[SparkCluster]:
    """Start a master and two workers with one core each, and wait until they have registered.

    Args:
        variables: what executors find in their environment.
    """
    with ExitStack() as stack:
        master = folder / "spark-master"
        stack.enter_context(_daemon("master.Master", master, *_COMMON))
        url = _said(master, r"Starting Spark master at (spark://\S+)")
        workers = folder / "worker-1", folder / "worker-2"
        for worker in workers:
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(worker / "work"))
            stack.enter_context(
                _daemon("worker.Worker", worker, *_COMMON, *size, url, variables=variables)
            )
        for worker in workers:
            _said(worker, r"Successfully registered with master (\S+)")
        yield SparkCluster(url, master / "log", workers)


@contextmanager
def _daemon(
    name: str, folder: Path, *options: str, variables: Mapping[str, str] = _NOTHING_ELSE
) -> Generator[None]:
    """One of Spark's own, with a disk of its own; pip's pyspark has no start scripts."""
    (folder / "tmp").mkdir(parents=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
    own = {"HOME": str(folder), "TMPDIR": str(folder / "tmp"), "SPARK_LOCAL_DIRS": str(folder)}
    environment = {**kept, **own, **variables, "SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": HOST}
    command = [_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *options]
    with running(command, folder=folder, environment=environment, log=folder / "log"):
        yield


def _said(folder: Path, pattern: str) -> str:
    """What a daemon says once it is ready."""
    log = folder / "log"
    found = until(
        lambda: re.search(pattern, log.read_text()), seconds=120, what=f"no {pattern}", log=log
    )
    return found[1]
