"""Two runs at once: each builds on what it wrote itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame, SparkSession

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.resources import SnapshotIOManager
from tableau_pipeline_tests.snapshots.support.jobs import materialize, model, reader
from tableau_pipeline_tests.snapshots.support.samples import newest, rows, store, store_partitions

STATES = ["north", "south", "west"]
STATE_ROWS = "state string, n int"
SEEN: list[Snapshot] = []
# Where the job of `again` keeps its snapshots; whether its last step fails.
ROOT = Path()
FAILS = False


@pytest.fixture(autouse=True)
def _nothing_seen() -> Iterator[None]:
    SEEN.clear()
    yield
    SEEN.clear()


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        yield instance


def meanwhile(what: Any, upstream: str = "model") -> dg.AssetsDefinition:
    """An asset between a model and its reader, while which another run does something."""

    @dg.asset(name="meanwhile", deps=[upstream])
    def happens() -> None:
        what()

    return happens


def reads_after(upstream: str = "model") -> dg.AssetsDefinition:
    """A reader of the model that waits for what happens meanwhile."""

    @dg.asset(name="reader", ins={"data": dg.AssetIn(upstream)}, deps=["meanwhile"])
    def read(data: Snapshot) -> None:
        SEEN.append(data)

    return read


def test_a_run_reads_what_it_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents flights built from the raw flights of another run."""
    other = meanwhile(lambda: store(spark.range(9), tmp_path))
    assert materialize(tmp_path, [model(spark.range(2)), other, reads_after()]).success
    assert [(seen.number, rows(seen)) for seen in SEEN] == [(1, {None: 2})]
    late: list[Snapshot] = []
    materialize(tmp_path, [model(spark.range(2)), reader(late, "model", Snapshot)], select="reader")
    assert late == [newest(tmp_path)]
    assert late[0].number == 2


def by_state(spark: SparkSession) -> dg.AssetsDefinition:
    """A model with a row for each state of the run."""

    @dg.asset(
        name="model",
        partitions_def=dg.StaticPartitionsDefinition(STATES),
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"partition_expr": "state"},
    )
    def build(context: dg.AssetExecutionContext) -> DataFrame:
        return spark.createDataFrame([(key, 1) for key in context.partition_keys], STATE_ROWS)

    return build


@pytest.mark.filterwarnings("ignore:Parameter `backfill_policy`")
@pytest.mark.parametrize("others", [["north", "west"], ["west"]], ids=" ".join)
@pytest.mark.slow
def test_partitions_of_others_are_the_newest(
    others: list[str], spark: SparkSession, tmp_path: Path
) -> None:
    """Prevents a run that loses its own partition, or that keeps an old one of another run."""
    for count in (7, 8):
        frame = spark.createDataFrame([("south", 1), ("west", 1)] * count, STATE_ROWS)
        store_partitions(frame, tmp_path, "state", ["south", "west"])
    frame = spark.createDataFrame([(key, 1) for key in others] * 2, STATE_ROWS)
    other = meanwhile(lambda: store_partitions(frame, tmp_path, "state", others))
    manager = SnapshotIOManager(root=str(tmp_path), spark=LazyPySparkResource(spark_config={}))
    result = dg.materialize(
        [by_state(spark), other, reads_after()],
        resources={"io_manager": manager},
        tags={
            "dagster/asset_partition_range_start": "north",
            "dagster/asset_partition_range_end": "north",
        },
        instance=dg.DagsterInstance.ephemeral(),
    )
    assert result.success
    assert rows(SEEN[0]) == {"north": 1, "south": 8, "west": 2}
    assert SEEN[0].missing() == []


def again() -> dg.JobDefinition:
    """A job whose last step fails as long as it is told to."""
    spark = LazyPySparkResource(spark_config={})

    @dg.asset(name="reader")
    def read(model: Snapshot) -> None:
        SEEN.append(model)
        if FAILS:
            raise RuntimeError("as told")

    return dg.Definitions(
        assets=[model(SparkSession.active().range(2)), read],
        jobs=[dg.define_asset_job("again")],
        resources={"io_manager": SnapshotIOManager(root=str(ROOT), spark=spark)},
        executor=dg.in_process_executor,
    ).resolve_job_def("again")


@pytest.mark.slow
def test_a_retry_reads_what_the_failed_run_wrote(
    spark: SparkSession,
    tmp_path: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prevents a retry from failure that goes on with the rows of another run."""
    names = globals()
    monkeypatch.setitem(names, "ROOT", tmp_path / "snapshots")
    monkeypatch.setitem(names, "FAILS", True)
    job = dg.reconstructable(again)
    with dg.execute_job(job, instance) as failed:
        assert not failed.success
    store(spark.range(9), ROOT)
    options = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
    with dg.execute_job(job, instance, reexecution_options=options) as failed:
        assert not failed.success
    monkeypatch.setitem(names, "FAILS", False)
    options = dg.ReexecutionOptions(failed.run_id, step_selection=["reader"])
    with dg.execute_job(job, instance, reexecution_options=options) as retried:
        assert retried.success
    assert [(seen.number, rows(seen)) for seen in SEEN] == [(1, {None: 2})] * 3


def test_what_is_loaded_outside_of_runs_is_the_newest(spark: SparkSession, tmp_path: Path) -> None:
    """Prevents a notebook that cannot load a model, because it is no run."""
    manager = SnapshotIOManager(root=str(tmp_path), spark=LazyPySparkResource(spark_config={}))
    definitions = dg.Definitions(assets=[model(spark.range(2))], resources={"io_manager": manager})
    store(spark.range(9), tmp_path)
    loaded = definitions.load_asset_value("model", python_type=Snapshot)
    assert loaded == newest(tmp_path)
