"""Refresh a data source through Dagster, from its model on, and measure what this costs."""

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import dagster as dg
import psutil
from pyspark.sql import DataFrame

from benchmarks.change.spark_sources import SLOT, SLOTS, slot_files
from benchmarks.fresh_process import peak_memory
from benchmarks.lineitem import KEY
from benchmarks.peers.process_tree import processes, watched
from tableau_pipeline.components import PublishedDatasource
from tableau_pipeline.components.asset_names import step_name
from tableau_pipeline.resources import SparkResource, resources_from_env
from tableau_pipeline.snapshots.spark import spark_session

# The source: a model that Spark writes by partitions or as a whole, or a Delta table that refreshes
# read directly.
Kind = Literal["partitions", "whole", "delta"]

MODEL, PUBLISHED = "lineitem", "published_lineitem"
# Do not store the output of steps: Dagster would start further processes for this.
_INSTANCE = {
    "compute_logs": {
        "module": "dagster._core.storage.noop_compute_log_manager",
        "class": "NoOpComputeLogManager",
    },
    "telemetry": {"enabled": False},
}
_QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}


@dataclass(frozen=True)
class Cost:
    """What the runs of a refresh cost, without importing libraries and loading definitions.

    Attributes:
        decision: what the refresh did.
        wall: seconds on the clock, with the server's work.
        cpu: processor seconds by program: "Python", "java" for the JVM, and "hyperd".
        python: the most bytes of memory that Python held.
        hyperd: the most bytes of memory that hyperd held; 0 if hyperd did not run.
        sent: the bytes sent to the server.
        luid: the LUID of the published data source.
    """

    decision: str
    wall: float
    cpu: Mapping[str, float]
    python: int
    hyperd: int
    sent: int
    luid: str

    @property
    def processor(self) -> float:
        """The processor seconds of all programs together."""
        return sum(self.cpu.values())


def publish(
    kind: Kind,
    folder: Path,
    environment: Mapping[str, str],
    *,
    slots: Sequence[str] = (),
    full: bool = False,
) -> Cost:
    """Materialize the model, if the kind has a model, and then the data source.

    Args:
        folder: contains the source, in `source`. Dagster keeps its history there too, if
            `environment` does not set DAGSTER_HOME.
        environment: variables that configure the pipeline.
        slots: the partitions of the model to write; () means all partitions.
        full: whether to publish the whole data source, instead of only the change.
    """
    os.environ.update(environment)
    warnings.simplefilter("ignore", dg.BetaWarning)
    job = _definitions(kind, folder / "source").resolve_implicit_global_asset_job_def()
    published = [dg.AssetKey(PUBLISHED), dg.AssetKey(f"{PUBLISHED}_extract")]
    model = [dg.AssetKey(MODEL)]
    config = {**_QUIET, "ops": {step_name(PUBLISHED): {"config": {"full": full}}}}
    with _instance(folder / "dagster") as instance:

        def run(keys: list[dg.AssetKey], tags: Mapping[str, str], config: Any) -> Any:
            return job.execute_in_process(
                config, instance=instance, asset_selection=keys, tags=tags
            )

        cpu, started = _processor_seconds(), time.perf_counter()
        with watched(_memory_of_hyperd, every=0.2) as peak:
            if kind == "partitions":
                written = slots or SLOTS
                span = {
                    "dagster/asset_partition_range_start": written[0],
                    "dagster/asset_partition_range_end": written[-1],
                }
                run(model, span, _QUIET)
            done = run([*model, *published] if kind == "whole" else published, {}, config)
        wall = time.perf_counter() - started
    metadata = _metadata(done)
    return Cost(
        decision=metadata["decision"],
        wall=wall,
        cpu={name: taken - cpu.get(name, 0) for name, taken in _processor_seconds().items()},
        python=peak_memory(),
        hyperd=peak.bytes,
        sent=metadata["details"]["bytes sent"],
        luid=metadata["details"]["luid"],
    )


def _instance(folder: Path) -> dg.DagsterInstance:
    if "DAGSTER_HOME" in os.environ:
        return dg.DagsterInstance.get()
    folder.mkdir(exist_ok=True)
    return dg.DagsterInstance.local_temp(str(folder), _INSTANCE)


def start_spark() -> float:
    """Start a Spark session that writes nothing; return the processor seconds that this took."""
    before = sum(_processor_seconds().values())
    spark_session()
    return sum(_processor_seconds().values()) - before


def _definitions(kind: Kind, source: Path) -> dg.Definitions:
    table: dict[str, Any] = {"refresh": {"diff": {"key": [*KEY]}}}
    if kind == "delta":
        table["source"] = {"delta": str(source)}
    declared = PublishedDatasource.from_attributes_dict(
        attributes={
            "name": "Lineitem",
            "project": "Default",
            "key": PUBLISHED,
            "tables": {MODEL: table},
            # The many updates of a measurement must not make a refresh publish in full.
            "republish": {"growth": 1000},
        }
    )
    models = {"partitions": [_by_slot(source)], "whole": [_whole(source)], "delta": []}
    return dg.Definitions.merge(
        declared.build_defs(dg.ComponentTree.for_test().load_context),
        dg.Definitions(
            assets=models[kind],
            resources=resources_from_env(),
            executor=dg.in_process_executor,
        ),
    )


def _by_slot(source: Path) -> dg.AssetsDefinition:
    @dg.asset(
        name=MODEL,
        io_manager_key="snapshots",
        partitions_def=dg.StaticPartitionsDefinition(SLOTS),
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"partition_expr": SLOT},
    )
    def lineitem(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
        return spark.spark_session.read.parquet(*slot_files(source, context.partition_keys))

    return lineitem


def _whole(source: Path) -> dg.AssetsDefinition:
    @dg.asset(name=MODEL, io_manager_key="snapshots")
    def lineitem(spark: SparkResource) -> DataFrame:
        return spark.spark_session.read.parquet(str(source))

    return lineitem


def _metadata(done: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (materialization,) = (
        event.materialization
        for event in done.get_asset_materialization_events()
        if event.asset_key == dg.AssetKey(PUBLISHED)
    )
    return {name: value.value for name, value in materialization.metadata.items()}


def _processor_seconds() -> dict[str, float]:
    """Return the processor seconds of this process and its descendants, by program.

    The seconds of an ended process count for the program of its parent.
    """
    found: dict[str, float] = {}
    for process in processes(os.getpid()):
        with suppress(psutil.NoSuchProcess):
            program, used = _program(process), process.cpu_times()
            taken = used.user + used.system + used.children_user + used.children_system
            found[program] = found.get(program, 0) + taken
    return found


def _program(process: psutil.Process) -> str:
    name = process.name()
    # hyperd renames its process to hyperdMain.
    return "hyperd" if name.startswith("hyperd") else "java" if name == "java" else "Python"


def _memory_of_hyperd() -> int:
    total = 0
    for each in processes(os.getpid()):
        with suppress(psutil.NoSuchProcess):
            if _program(each) == "hyperd":
                used = each.memory_info()
                # Leave out the pages of the files that hyperd reads and writes: the system takes
                # those pages back when it needs the room.
                total += used.rss - used.shared
    return total
