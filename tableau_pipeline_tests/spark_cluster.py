"""A standalone cluster of Spark: a master and two workers in processes of their own."""

import os
import re
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pyspark

from tableau_pipeline_tests.dagster_servers import running, said

HOST = "127.0.0.1"
# The hosts of the workers. Spark runs a copy of a slow task only on a host with another name.
_WORKERS = (HOST, "localhost")
# Settings of a driver that uses both workers, each with one executor. The driver waits for both
# executors only if it knows the number of its cores. The executors share one address, but may have
# separate disks, so neither may read the other's disk directly.
DRIVER = f"""
spark.cores.max                                    2
spark.driver.host                                  {HOST}
spark.executor.memory                              512m
spark.scheduler.minRegisteredResourcesRatio        1.0
spark.scheduler.maxRegisteredResourcesWaitingTime  60s
spark.shuffle.readHostLocalDisk                    false
"""
_HOME = Path(pyspark.__file__).parent
_PORTS = ("--port", "0", "--webui-port", "0")
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
        """Return the names of all applications that have registered so far, by ID."""
        found = re.findall(r"Registered app (.*) with ID (\S+)", self.log.read_text())
        return {id_: name for name, id_ in found}

    def ran_on(self, application: str) -> list[str]:
        """Return the names of the workers that had an executor of an application."""
        return [each.name for each in self.workers if (each / "work" / application).exists()]


@contextmanager
def spark_cluster(
    folder: Path,
    *,
    variables: Mapping[str, str] = _NOTHING_ELSE,
    start: Callable[[Path], Sequence[str]] = lambda _: (),
) -> Generator[SparkCluster]:
    """Start a master and two workers with one core each, and wait until they have registered.

    Args:
        variables: environment variables of the executors.
        start: returns a prefix for the command of a worker, given the folder of the worker.
    """
    with ExitStack() as stack:
        master = folder / "spark-master"
        process = stack.enter_context(_daemon("master.Master", master, "--host", HOST, *_PORTS))
        url = said(process, master / "log", r"Starting Spark master at (spark://\S+)")[1]
        workers = folder / "worker-1", folder / "worker-2"
        for worker in workers:
            worker.mkdir(exist_ok=True)
        processes = [
            stack.enter_context(
                _daemon(
                    *("worker.Worker", worker, "--host", host, *_PORTS),
                    *("--cores", "1", "--memory", "1g"),
                    *("--work-dir", str(worker / "work"), url),
                    variables=variables,
                    start=start(worker),
                )
            )
            for worker, host in zip(workers, _WORKERS, strict=True)
        ]
        for worker, process in zip(workers, processes, strict=True):
            said(process, worker / "log", "Successfully registered with master")
        yield SparkCluster(url, master / "log", workers)


@contextmanager
def _daemon(
    name: str,
    folder: Path,
    *options: str,
    variables: Mapping[str, str] = _NOTHING_ELSE,
    start: Sequence[str] = (),
) -> Generator[subprocess.Popen]:
    """Run a Spark daemon in its own folder; pip's pyspark lacks the scripts that start daemons."""
    (folder / "tmp").mkdir(parents=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
    own = {"HOME": str(folder), "TMPDIR": str(folder / "tmp"), "SPARK_LOCAL_DIRS": str(folder)}
    environment = {**kept, **own, **variables, "SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": HOST}
    command = [*start, _HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *options]
    with running(command, folder=folder, environment=environment, log=folder / "log") as process:
        yield process
