"""Hosts that share only an object store and Dagster's database, and may be lost at any time."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableau_pipeline.resources import resources_from_env
from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.dagster_servers import until
from tableau_pipeline_tests.deployment.hosts.machines import (
    Deployment,
    Host,
    deployed,
    why_no_hosts,
)
from tableau_pipeline_tests.deployment.hosts.process import Stop
from tableau_pipeline_tests.deployment.hosts.speculative_run import MEETING, ROWS, TASKS
from tableau_pipeline_tests.deployment.hosts.speculative_run import MODEL as SPECULATED
from tableau_pipeline_tests.deployment.object_stores import BUCKET, ObjectServer, S3Server
from tableau_pipeline_tests.spark_cluster import DRIVER, spark_cluster

pytestmark = pytest.mark.timeout(900)

SITE = "tableau_pipeline.publishing.site:TableauSite"
ANSWERED = Stop(f"{SITE}.update", after=True)
UPDATE, PUBLISH = "Decision: update.", "Decision: publish (replace)."
# Where a refresh is killed, and the decision of the next refresh.
PHASES = {
    "building": (Stop("tableau_pipeline.extracts.delta:find_affected", after=True), UPDATE),
    "sent": (Stop("http.client:HTTPConnection.getresponse", within=f"{SITE}.update"), UPDATE),
    "created": (Stop(f"{SITE}.publish", after=True), PUBLISH),
}
CREATE = "tableau_pipeline.core.journal_store:StoredJournal.create"
CLAIMED = Stop(CREATE, after=True)
MODEL = "orders"
versions = count(1)


def write(deployment: Deployment, model: str = MODEL) -> None:
    """Store a version with one row more; the amount of each tenth row is the version number."""
    version = next(versions)
    ids = range(2_000 + version)
    amounts = [version if number % 10 == version % 10 else 0 for number in ids]
    columns = {"id": pa.array(ids, pa.int64()), "amount": pa.array(amounts, pa.int32())}
    deployment.write(model, pa.table(columns))


@pytest.fixture(scope="module")
def running(
    server: ObjectServer, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Deployment]:
    """A deployment with a published data source. All tests with the same store share it."""
    if reason := why_no_hosts():
        pytest.skip(reason)
    with deployed(tmp_path_factory.mktemp("deployment"), server) as found:
        write(found)
        found.first.refresh(MODEL)
        yield found


@pytest.fixture
def deployment(running: Deployment) -> Deployment:
    """The shared deployment, with a newer version of the model."""
    write(running)
    return running


def test_hosts_without_a_common_disk(deployment: Deployment, server: ObjectServer):
    """Prevents: a refresh needs a file of the host that refreshed before."""
    first, second = deployment.first, deployment.second
    for host, other in ((first, second), (second, first)):
        assert host.sees(host.disk)
        assert not host.sees(other.disk)
        assert not host.sees(deployment.shared)
        assert not host.sees(server.folder)
    assert UPDATE in deployment.said(second.refresh(MODEL))
    assert deployment.wrong(MODEL) == []
    assert left(second.disk / "tmp") == []


def left(folder: Path) -> list[Path]:
    """The files in a folder, except copies and lock files, which the next refresh may use."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if "copies" not in path.parts and path.suffix != ".lock"]


@pytest.mark.long
def test_data_sources_at_once(running: Deployment):
    """Prevents: refreshes of two hosts, or of two data sources on a host, disturb each other."""
    models = [f"{MODEL}_{number}" for number in range(3)]
    for _ in range(2):
        for model in models:
            write(running, model)
        hosts = (running.first, running.second)
        runs = [(host, host.begin(model)) for model in models for host in hosts]
        assert [host.ended(run) for host, run in runs] == [0] * len(runs)
    assert [running.wrong(model) for model in models] == [[]] * len(models)


def test_eight_refreshes_at_once(running: Deployment):
    """Prevents: eight refreshes begin at once, and two of them send a request, or one fails."""
    model = "at_once"
    for number, decision in enumerate(("Decision: publish (create).", UPDATE), start=1):
        write(running, model)
        hosts = (running.first, running.second) * 4
        runs = [(host, host.begin(model)) for host in hosts]
        assert [host.ended(run) for host, run in runs] == [0] * len(runs)
        said = [running.said(run) for _, run in runs]
        assert [each.count(decision) for each in said].count(1) == 1
        assert sum("Decision: no change." in each for each in said) == len(runs) - 1
        assert running.jobs(model) == number
        assert running.wrong(model) == []


@pytest.mark.long
def test_another_instance(deployment: Deployment, tmp_path: Path):
    """Prevents: an instance believes that another's run has ended, or repeats its requests."""
    other = Host(tmp_path / "other", deployment.settings, home="dagster_home")
    with other.running():
        run = other.paused(MODEL, ANSWERED)
        jobs = deployment.jobs(MODEL)
        newer = deployment.first.begin(MODEL)
        waiting = f"Waiting for run {run}, which refreshes shared_{MODEL}"
        until(
            lambda: waiting in deployment.said(newer), seconds=60, what="the newer run should wait"
        )
        other.signal(run, "SIGCONT")
        assert other.ended(run) == deployment.first.ended(newer) == 0
        assert "Decision: no change." in deployment.said(newer)
        assert deployment.jobs(MODEL) == jobs
        write(deployment)
        assert UPDATE in deployment.said(deployment.second.refresh(MODEL))
        logged = len(other.log())
        other.refresh(MODEL)
        assert "Decision: no change." in other.log()[logged:]
    assert deployment.wrong(MODEL) == []


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_run(deployment: Deployment, phase: str):
    """Prevents: after a killed run, another host loses or repeats rows, or cannot refresh."""
    stop, then = PHASES[phase]
    model = "created" if phase == "created" else MODEL
    write(deployment, model)
    run = deployment.first.paused(model, stop)
    deployment.first.signal(run, "SIGKILL")
    assert deployment.first.ended(run) == -9
    deployment.report_death(run)
    write(deployment, model)
    assert then in deployment.said(deployment.second.refresh(model))
    assert deployment.wrong(model) == []


@pytest.mark.long
def test_a_paused_run_that_was_given_up(deployment: Deployment):
    """Prevents: a run that mixed two versions succeeds, or the mixture outlives the next run."""
    run = deployment.first.paused(MODEL, Stop(f"{SITE}.update"))
    deployment.report_death(run)
    write(deployment)
    deployment.second.refresh(MODEL)
    assert deployment.wrong(MODEL) == []
    deployment.first.signal(run, "SIGCONT")
    assert deployment.first.ended(run) == 1
    assert "This refresh was overtaken by a later refresh" in deployment.said(run)
    # The run sent its request after its last check, and the server accepted it. The next refresh
    # must repair the wrong rows.
    assert deployment.wrong(MODEL) != []
    deployment.second.refresh(MODEL)
    assert deployment.wrong(MODEL) == []


@pytest.mark.long
def test_a_lost_host(deployment: Deployment):
    """Prevents: a refresh on another host counts as dead, or a lost host cannot be replaced."""
    run = deployment.first.paused(MODEL, ANSWERED)
    deployment.first.kill()
    shutil.rmtree(deployment.first.disk)
    newer = deployment.second.begin(MODEL)
    waiting = f"Waiting for run {run}, which refreshes shared_{MODEL}"
    until(lambda: waiting in deployment.said(newer), seconds=60, what="the newer run should wait")
    # The second host cannot know that the first host is lost. A user terminates the run in Dagster.
    deployment.report_death(run)
    assert deployment.second.ended(newer) == 0
    # The rows show that the update of the lost host has arrived.
    assert "Decision: no change." in deployment.said(newer)
    assert deployment.wrong(MODEL) == []
    deployment.first.start()
    write(deployment)
    assert UPDATE in deployment.said(deployment.first.refresh(MODEL))
    assert deployment.wrong(MODEL) == []


@pytest.mark.long
def test_a_database_that_restarts(deployment: Deployment):
    """Prevents: a run fails because the database was away for a moment."""
    run = deployment.first.paused(MODEL, ANSWERED)
    deployment.postgresql.kill()
    deployment.first.signal(run, "SIGCONT")
    deployment.postgresql.start()
    assert deployment.first.ended(run) == 0
    assert deployment.wrong(MODEL) == []


@pytest.mark.parametrize(
    ("stop", "retries"),
    # Dagster gives up a request to the database after six tries. After `ANSWERED`, the run first
    # loses a line of our log by six tries. Then Dagster's report of this loss fails, too.
    [(ANSWERED, 12), (CLAIMED, 5)],
    ids=["answered", "claimed"],
)
@pytest.mark.long
def test_a_lost_database(deployment: Deployment, stop: Stop, retries: int):
    """Prevents: a refresh succeeds without a trace in Dagster, or blocks all later runs."""
    run = deployment.first.paused(MODEL, stop)
    logged = len(deployment.first.log())
    deployment.postgresql.kill()
    deployment.first.signal(run, "SIGCONT")
    missed = "Retrying failed database connection"
    until(
        lambda: deployment.first.log()[logged:].count(missed) > retries,
        seconds=60,
        what="the run should miss the database",
    )
    deployment.postgresql.start()
    assert deployment.first.ended(run) == 1
    said = deployment.said(run)
    assert "too many retries for DB connection" in said
    assert ("Decision" in said) is (stop is ANSWERED)
    write(deployment)
    assert UPDATE in deployment.said(deployment.second.refresh(MODEL))
    assert deployment.wrong(MODEL) == []


@pytest.mark.parametrize(
    "server", [pytest.param(S3Server, id="S3", marks=pytest.mark.slow)], indirect=True
)
@pytest.mark.parametrize("stop", [ANSWERED, CLAIMED], ids=["answered", "claimed"])
@pytest.mark.long
def test_a_lost_store(deployment: Deployment, server: ObjectServer, stop: Stop):
    """Prevents: a refresh continues without its journal, or blocks all later runs."""
    jobs = deployment.jobs(MODEL)
    run = deployment.first.paused(MODEL, replace(stop, gives_up=True))
    server.kill()
    deployment.first.signal(run, "SIGCONT")
    assert deployment.first.ended(run) == 1
    server.start()
    said = deployment.said(run)
    assert re.search(r"(Reading|Writing) s3://\S+/journal/\S+ failed: no connection", said), said
    assert ("Decision" in said) is (stop is ANSWERED)
    assert deployment.jobs(MODEL) == jobs + (stop is ANSWERED)
    write(deployment)
    assert UPDATE in deployment.said(deployment.second.refresh(MODEL))
    assert deployment.wrong(MODEL) == []


# As soon as half of the tasks have ended, Spark starts copies of the remaining tasks.
SPECULATION = """
spark.speculation             true
spark.speculation.multiplier  1
spark.speculation.quantile    0.5
"""


@pytest.mark.long
def test_two_copies_of_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a model has rows twice because both copies of a task have stored them."""
    for name in ("conf", "copies"):
        (tmp_path / name).mkdir()
    with (
        S3Server(tmp_path / "s3").running() as store,
        spark_cluster(tmp_path, variables=store.settings) as cluster,
    ):
        defaults = f"{DRIVER}{SPECULATION}spark.master {cluster.url}\n"
        (tmp_path / "conf" / "spark-defaults.conf").write_text(defaults)
        for name, value in {
            **store.settings,
            "PIPELINE_DATA_DIR": f"s3://{BUCKET}/cluster",
            "SPARK_CONF_DIR": str(tmp_path / "conf"),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            MEETING: str(tmp_path / "copies"),
        }.items():
            monkeypatch.setenv(name, value)
        program = "tableau_pipeline_tests.deployment.hosts.speculative_run"
        done = subprocess.run(
            [sys.executable, "-m", program], env=os.environ, timeout=300,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-5000:]
        model = resources_from_env()["snapshots"].store.newest(SPECULATED)
        rows = pa.concat_tables(pq.read_table(path, columns=["id"]) for path in model.paths)
    assert {path.name for path in (tmp_path / "copies").iterdir()} == {"0", "1"}
    stored = [*(tmp_path / "s3" / "buckets").rglob("part-*.parquet")]
    assert len(stored) == TASKS + 1
    assert len(model.paths) == TASKS
    assert sorted(rows["id"].to_pylist()) == [*range(ROWS)]
