"""A model and its data source while the object store comes and goes."""

import re
import tempfile
from collections.abc import Callable, Iterator
from itertools import count, groupby
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.audit import audit_job
from tableau_pipeline.components.published_datasource import refresh_assets
from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.demo.differences import differences
from tableau_pipeline.hyper.process import hyper_process
from tableau_pipeline.objects.stores import StoreError
from tableau_pipeline.resources import SnapshotIOManager, SparkResource, resources_from_env
from tableau_pipeline.resources.data_folder import local_copies
from tableau_pipeline.snapshots.load import read_frame
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline.snapshots.write import write_snapshot
from tableau_pipeline_tests.deployment.stores.network import Fault, Network
from tableau_pipeline_tests.deployment.stores.object_server import ObjectServer
from tableau_pipeline_tests.refresh.support.pipeline import session
from tableau_sandbox.testing import Sandbox

pytestmark = pytest.mark.timeout(600)
# What a user sees in one line: what failed, why, and what to do.
UNREACHABLE = (
    r"(Reading|Writing|Listing|Deleting) (s3|gs|abfss)://\S+ failed: the connection broke off, or "
    r"there was no answer in time \([^\n]+\)\. Check the network, then run again\.\s*$"
)


@pytest.fixture
def tasks(
    spark: SparkSession, server: ObjectServer, network: Network, monkeypatch: pytest.MonkeyPatch
) -> SparkSession:
    """Spark, whose tasks find the store as this process does."""
    for name, value in server.settings_at(network.port).items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return spark


def check(message: str) -> None:
    assert re.search(UNREACHABLE, message), message


def write(frame: DataFrame, store: SnapshotStore) -> Snapshot:
    return write_snapshot(frame, store, asset_key="model", run_id="test")


def ids(spark: SparkSession, snapshot: Snapshot | None) -> list[int]:
    assert snapshot
    return sorted(row.id for row in read_frame(spark, snapshot).collect())


@pytest.mark.parametrize(
    ("end", "files"), [(10, 2), (600_000, 1)], ids=["two files", "a file in parts"]
)
def test_each_request_of_a_write(
    tasks: SparkSession,
    network: Network,
    client: Callable[[], SnapshotStore],
    end: int,
    files: int,
):
    """Prevents: a write that loses the version before it, or leaves half a version."""
    store = client()
    first = write(tasks.range(3, numPartitions=1), store)
    rows = tasks.range(3, end, numPartitions=files)
    for passed in count():
        network.down_after(passed)
        try:
            write(rows, store)
        except StoreError as error:
            check(str(error))
        else:
            break
        finally:
            network.up()
        assert store.newest("model") == first
        assert first.missing() == []
    assert passed > 5
    assert ids(tasks, client().newest("model")) == [*range(3, end)]


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.LATE])
def test_an_outcome_that_stays_unknown(
    fault: Fault, tasks: SparkSession, network: Network, client: Callable[[], SnapshotStore]
):
    """Prevents: files that are removed although there is a version of them, or will be."""
    store = client()
    network.fault = lambda method, path: fault if "versions" in path and method == "PUT" else None
    with pytest.raises(StoreError, match=r"Writing .*/@versions/000000001\.json failed"):
        write(tasks.range(3, numPartitions=1), store)
    network.up()
    network.settle()
    assert ids(tasks, store.newest("model")) == [0, 1, 2]
    assert write(tasks.range(5, numPartitions=1), store).number == 2
    assert ids(tasks, store.newest("model")) == [*range(5)]


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.CUT])
def test_each_request_of_a_read(
    fault: Fault, tasks: SparkSession, network: Network, client: Callable[[], SnapshotStore]
):
    """Prevents: rows that are missing from what was read, without a word."""
    write(tasks.range(10_000, numPartitions=2), client())
    for passed in count():
        network.down_after(passed, fault)
        try:
            # By Spark, and by hyperd.
            found = client().newest("model")
            assert ids(tasks, found) == [*range(10_000)]
            assert found
            assert sum(Path(path).stat().st_size for path in found.paths) == found.size
        # A user's code sees Spark's own error, whose last line is ours.
        except (StoreError, PySparkException, Py4JJavaError) as error:
            check(str(error).strip())
        else:
            break
        finally:
            network.up()
    assert passed > 5


DATASOURCE = {
    "name": "Shared Orders",
    "project": "Default",
    "tables": {"orders": {"refresh": {"diff": {"key": ["id"]}}}},
    # So few rows are as large as their update.
    "republish": {"growth": 1000},
}


def definitions(version: int) -> dg.Definitions:
    """Rows of which one in ten differs from version to version, and that become more."""

    @dg.asset(io_manager_key="snapshots")
    def orders(spark: SparkResource) -> DataFrame:
        rows = spark.spark_session.range(10_000 + version, numPartitions=2)
        amount = F.when(F.col("id") % 10 == version % 10, version).otherwise(0)
        return rows.withColumn("amount", amount.cast("decimal(10,2)"))

    declared = PublishedDatasource.from_attributes_dict(attributes=DATASOURCE)
    return dg.Definitions(
        assets=[orders, refresh_assets(declared, None)],
        resources=resources_from_env(),
        executor=dg.in_process_executor,
    )


class Runs:
    """Runs of a model and its data source, in this process."""

    def __init__(self, instance: dg.DagsterInstance, sandbox: Sandbox) -> None:
        self._instance, self._sandbox = instance, sandbox
        self._declaration = PublishedDatasource.from_attributes_dict(attributes=DATASOURCE)
        self.snapshots: SnapshotIOManager = resources_from_env()["snapshots"]

    def run(self, version: int) -> list[str]:
        """Build a version of the model and publish it; the errors."""
        job = definitions(version).resolve_implicit_global_asset_job_def()
        result = job.execute_in_process(instance=self._instance, raise_on_error=False)
        failures: list[Any] = [
            event.event_specific_data for event in result.all_events if event.is_step_failure
        ]
        return [failure.user_failure_data.description for failure in failures]

    def audit(self) -> None:
        """Compare what is published with the model, row by row."""
        job = audit_job("audit", [self._declaration])
        assert job.execute_in_process(
            instance=self._instance, resources=resources_from_env(), raise_on_error=True
        ).success

    def wrong(self) -> list[str]:
        """In what the published data source differs from the newest version of its model."""
        newest = self.snapshots.snapshot("orders")
        with session(self._sandbox) as site, tempfile.TemporaryDirectory() as folder:
            (item,) = site.tsc.datasources.filter(name=self._declaration.name)
            tdsx = site.download(str(item.id), Path(folder))
            return differences(hyper_process(), tdsx, self._declaration, {"orders": newest})


@pytest.fixture
def runs(
    tasks: SparkSession,
    tableau_sandbox: Sandbox,
    location: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Runs]:
    """Runs with an empty disk and an empty store."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    local_copies.cache_clear()
    monkeypatch.setenv("PIPELINE_DATA_DIR", location)
    monkeypatch.setenv("PIPELINE_CACHE_GB", "0.000001")
    with dg.DagsterInstance.ephemeral() as instance:
        yield Runs(instance, tableau_sandbox)
    local_copies.cache_clear()


def phases(requests: list[tuple[str, str]]) -> list[int]:
    """The numbers of those that differ in kind from the one before."""
    kinds = [(method, "versions" in path, "%40data" in path) for method, path in requests]
    firsts, position = [], 0
    for _, group in groupby(kinds):
        firsts.append(position)
        position += len([*group])
    return firsts


def test_each_phase_of_a_refresh(runs: Runs, network: Network):
    """Prevents: rows that are lost or published twice, as the store was away for a while."""
    assert runs.run(1) == []
    # What hyperd has read was released.
    assert [*runs.snapshots.copies.folder.iterdir()] == []
    runs.audit()
    assert [*runs.snapshots.copies.folder.iterdir()] == []
    before = len(network.requests)
    assert runs.run(2) == []
    failures = 0
    for version, passed in enumerate(phases(network.requests[before:]), 3):
        network.down_after(passed)
        errors = runs.run(version)
        network.up()
        failures += len(errors)
        for error in errors:
            check(error)
        newest = runs.snapshots.snapshot("orders")
        assert newest
        assert newest.missing() == []
        assert newest.fingerprint.rows in (10_000 + version - 1, 10_000 + version)
        assert runs.run(version) == []
        assert runs.wrong() == []
        if not errors:
            # Only old snapshots were not removed.
            break
    assert failures > 5
