"""What Spark was writing to an object store when a process of its own was killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.demo.differences import differences
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.objects.stores import opened
from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.deployment.hosts.cluster_run import HOLD, MODEL, ROWS, STOP, TASKS
from tableau_pipeline_tests.deployment.hosts.process import declaration
from tableau_pipeline_tests.deployment.s3 import BUCKET, S3Server
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_pipeline_tests.spark_cluster import DRIVER, SparkCluster, spark_cluster
from tableau_pipeline_tests.waiting import until
from tableau_sandbox.testing import Sandbox

# The workers that are killed at that moment.
Moment = Generator[Sequence[Path]]
Phase = Callable[..., AbstractContextManager[Sequence[Path]]]
COMMIT = "tableau_pipeline.snapshots.write:commit"


def processes(worker: Path) -> list[psutil.Process]:
    """A worker, its executor, and the processes of both."""
    mine = psutil.Process().children(recursive=True)
    (found,) = (each for each in mine if str(worker / "work") in command(each))
    return [found, *found.children(recursive=True)]


def command(process: psutil.Process) -> list[str]:
    """The command line of a process; [] if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def executors(cluster: SparkCluster) -> list[psutil.Process]:
    """The processes of executors that run."""
    found = [each for worker in cluster.workers for each in processes(worker)[1:]]
    return [each for each in found if command(each)]


def connected(cluster: SparkCluster, port: int) -> int:
    """How many processes of executors have a connection to a port."""
    pids = {each.pid for each in executors(cluster)}
    found = psutil.net_connections("tcp")
    return len({each.pid for each in found if each.raddr and each.raddr.port == port} & pids)


@contextmanager
def paused(port: int) -> Generator[None]:
    """Let the server at a port answer nothing; what clients send waits for it."""
    (pid,) = {
        each.pid
        for each in psutil.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port
    }
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def computing(run: subprocess.Popen, hold: Path, *, cluster: SparkCluster, port: int) -> Moment:
    """While no task has written a row."""
    yield cluster.workers[:1]
    hold.unlink()


@contextmanager
def writing(run: subprocess.Popen, hold: Path, *, cluster: SparkCluster, port: int) -> Moment:
    """While tasks wait for the store to take what they write."""
    with paused(port):
        hold.unlink()
        until(lambda: connected(cluster, port) == 2, seconds=120, what="no writers")
        yield cluster.workers[:1]


@contextmanager
def written(run: subprocess.Popen, hold: Path, *, cluster: SparkCluster, port: int) -> Moment:
    """When the rows are stored, and the version is about to be committed."""
    hold.unlink()
    process = psutil.Process(run.pid)
    until(
        lambda: process.status() == psutil.STATUS_STOPPED, seconds=120, what="it should stop itself"
    )
    yield cluster.workers
    run.send_signal(signal.SIGCONT)


@contextmanager
def held(hold: Path) -> Generator[subprocess.Popen]:
    """A run with a task on each worker; none gets beyond its first row before `hold` is removed."""
    for each in hold.parent.glob("hold *"):
        each.unlink()
    hold.touch()
    with (log := hold.with_name("log")).open("a") as output:
        run = subprocess.Popen(
            [sys.executable, "-m", "tableau_pipeline_tests.deployment.hosts.cluster_run"],
            stdout=output, stderr=output, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    try:
        until(
            lambda: run.poll() is not None or len([*hold.parent.glob("hold *")]) == 2,
            seconds=300,
            what="two tasks should run",
            log=log,
        )
        assert run.poll() is None, log.read_text()[-5000:]
        yield run
    finally:
        run.kill()
        run.wait()


@pytest.mark.parametrize(
    "phase",
    [
        pytest.param(computing, marks=pytest.mark.long),
        pytest.param(writing, marks=pytest.mark.slow),
        pytest.param(written, marks=pytest.mark.long),
    ],
)
def test_killed_while_a_snapshot_is_written(
    tableau_sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: Phase
):
    """Prevents: rows twice or lost after a worker was killed, or a version without all rows."""
    hold, server = tmp_path / "hold", S3Server(tmp_path / "s3")
    (tmp_path / "conf").mkdir()
    defaults = tmp_path / "conf" / "spark-defaults.conf"
    for name, value in {
        **server.settings,
        "PIPELINE_DATA_DIR": f"s3://{BUCKET}/cluster",
        "DAGSTER_HOME": str(tmp_path),
        "SPARK_CONF_DIR": str(defaults.parent),
        "PYSPARK_PYTHON": sys.executable,
        HOLD: str(hold),
        STOP: COMMIT if phase is written else "",
    }.items():
        monkeypatch.setenv(name, value)
    # The store of another test was at another port.
    opened.cache_clear()
    port = int(server.settings["AWS_ENDPOINT_URL"].rpartition(":")[2])
    store = resources_from_env()["snapshots"].store
    try:
        server.start()
        with spark_cluster(tmp_path) as cluster:
            defaults.write_text(f"{DRIVER}\nspark.master {cluster.url}\n")
            with held(hold) as run, phase(run, hold, cluster=cluster, port=port):
                run.kill()
                run.wait()
            assert store.newest(MODEL) is None
            until(lambda: not executors(cluster), seconds=60, what="they should have ended")
            with held(hold) as run:
                with phase(run, hold, cluster=cluster, port=port) as workers:
                    for process in chain(*map(processes, workers)):
                        # Without its executor, a Python worker ends by itself.
                        with suppress(psutil.NoSuchProcess):
                            process.kill()
                assert run.wait(600) == 0, (tmp_path / "log").read_text()[-5000:]
        model = store.newest(MODEL)
        assert model
        check(model)
        assert differing(tableau_sandbox, model) == []
    finally:
        server.stop()


def check(model: Snapshot) -> None:
    """The first version has every row, in a file for each task."""
    assert model.number == 1
    files = [pq.read_table(path, columns=["id", "amount"]) for path in model.paths]
    assert len(files) == TASKS
    rows = pa.concat_tables(files).sort_by("id").to_pydict()
    assert rows == {"id": [*range(ROWS)], "amount": [*range(0, 2 * ROWS, 2)]}


def differing(sandbox: Sandbox, model: Snapshot) -> list[str]:
    """In what the published data source differs from its model."""
    declared = declaration(MODEL)
    with session(sandbox) as site, TemporaryDirectory() as folder:
        (item,) = site.tsc.datasources.filter(name=declared.name)
        tdsx = site.download(str(item.id), Path(folder))
        return differences(hyper_process(), tdsx, declared, {MODEL: model})
