"""Dagster's side of snapshots: assets return DataFrames, and get DataFrames or Snapshots."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, get_origin

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field
from pyspark.sql import DataFrame

from tableau_pipeline.core.snapshot import Snapshot, combined_version
from tableau_pipeline.snapshots.collect import collect
from tableau_pipeline.snapshots.partitions import Window
from tableau_pipeline.snapshots.read import read_frame
from tableau_pipeline.snapshots.store import new_folder, newest
from tableau_pipeline.snapshots.write import write_partitions, write_snapshot

PARTITION_EXPR = "partition_expr"


class SnapshotIOManager(dg.ConfigurableIOManager):
    """Stores what a model returns as snapshots, and loads the newest ones of an upstream model.

    A parameter annotated `DataFrame` is read by Spark. One annotated `Snapshot`, or
    `dict[str, Snapshot]` by partition, needs no JVM.
    """

    root: str = Field(description="Folder of all snapshots, seen by Spark and by every run.")
    spark: dg.ResourceDependency[LazyPySparkResource]
    keep_days: float = Field(
        default=14,
        gt=0,
        description="Days until a snapshot that was replaced is removed, unless a refresh may "
        "still compare with it; must be longer than any run takes.",
    )

    def snapshots(self, asset_key: str) -> tuple[Snapshot, ...]:
        """The newest snapshots of a model, one for each partition; "a/b" is a key of two parts."""
        return newest(Path(self.root), asset_key)

    def collect(
        self, asset_keys: Collection[str], named: Callable[[], Collection[Path]]
    ) -> list[Path]:
        """Remove what is too old of these models' snapshots; see `snapshots.collect.collect`."""
        return collect(Path(self.root), asset_keys, keep_days=self.keep_days, named=named)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write what a model returned; its fingerprint becomes the asset's data version."""
        if obj is None:
            return
        asset_key = context.asset_key.to_user_string()
        if not isinstance(obj, DataFrame):
            raise TypeError(
                f'Model "{asset_key}" returned {type(obj).__name__}: return a Spark DataFrame, '
                "or give the asset another io_manager_key."
            )
        started = time.monotonic()
        folder = new_folder(Path(self.root), asset_key)
        if context.has_asset_partitions:
            snapshots = write_partitions(
                obj,
                folder,
                expression=_partition_expression(context),
                partitions=_partitions(context),
                asset_key=asset_key,
                run_id=context.run_id,
            )
        else:
            snapshots = [write_snapshot(obj, folder, asset_key=asset_key, run_id=context.run_id)]
        _report(context, snapshots, seconds=time.monotonic() - started)

    def load_input(self, context: dg.InputContext) -> DataFrame | Snapshot | dict[str, Snapshot]:
        """Read the newest snapshots of an upstream model."""
        asset_key = context.asset_key.to_user_string()
        snapshots = self.snapshots(asset_key)
        if context.has_asset_partitions:
            wanted = set(context.asset_partition_keys)
            snapshots = tuple(each for each in snapshots if each.partition in wanted)
        if not snapshots:
            raise dg.Failure(
                f'Model "{asset_key}" has no snapshot in {self.root}: materialize it first.'
            )
        annotation = context.dagster_type.typing_type
        if annotation is Snapshot and len(snapshots) == 1:
            return snapshots[0]
        if annotation is Snapshot:
            raise dg.Failure(
                f'Model "{asset_key}" has {len(snapshots)} partitions: annotate the parameter '
                "dict[str, Snapshot]."
            )
        if get_origin(annotation) is dict:
            return {str(snapshot.partition): snapshot for snapshot in snapshots}
        return read_frame(self.spark.spark_session, snapshots)


def _partition_expression(context: dg.OutputContext) -> str:
    expression = (context.definition_metadata or {}).get(PARTITION_EXPR)
    if not isinstance(expression, str):
        raise dg.Failure(
            f'Model "{context.asset_key.to_user_string()}" is partitioned: say which column tells '
            f'the partition, as metadata={{"{PARTITION_EXPR}": "<column>"}} of the asset.'
        )
    return expression


def _partitions(context: dg.OutputContext) -> Mapping[str, Window] | Sequence[str]:
    definition, keys = context.asset_partitions_def, context.asset_partition_keys
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        windows = {key: definition.time_window_for_partition_key(key) for key in keys}
        return {key: Window(window.start, window.end) for key, window in windows.items()}
    if isinstance(definition, dg.StaticPartitionsDefinition):
        return list(keys)
    raise dg.Failure(
        f'Model "{context.asset_key.to_user_string()}": {type(definition).__name__} is not '
        "supported; partition it by time windows or by a fixed list of keys."
    )


def _report(context: dg.OutputContext, snapshots: Sequence[Snapshot], *, seconds: float) -> None:
    step = dg.AssetExecutionContext.get()
    # Dagster gives one data version to all partitions of a step.
    version = combined_version(snapshots)
    step.set_data_version(context.asset_key, dg.DataVersion(version))
    context.add_output_metadata(
        {
            "dagster/column_schema": dg.TableSchema(
                columns=[
                    dg.TableColumn(each.name, each.type, snapshots[0].comments.get(each.name))
                    for each in snapshots[0].columns
                ]
            ),
            "seconds": round(seconds, 3),
        }
    )
    for snapshot in snapshots:
        metadata = {
            "dagster/uri": snapshot.folder.as_uri(),
            "fingerprint": snapshot.data_version,
            "bytes": snapshot.size,
        }
        rows = snapshot.fingerprint.rows
        if snapshot.partition is None:
            context.add_output_metadata({"dagster/row_count": rows, **metadata})
        else:
            step.add_asset_metadata(
                {"dagster/partition_row_count": rows, **metadata},
                asset_key=context.asset_key,
                partition_key=snapshot.partition,
            )
