"""Dagster's side of snapshots: assets return DataFrames, and get DataFrames or Snapshots."""

import time
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field
from pyspark.sql import DataFrame

from tableau_pipeline.refresh.snapshot import Snapshot
from tableau_pipeline.snapshots.store import new_folder, newest, spark_path
from tableau_pipeline.snapshots.write import write_snapshot


class SnapshotIOManager(dg.ConfigurableIOManager):
    """Stores what a model returns as a snapshot, and loads the newest one of an upstream model.

    A parameter annotated `DataFrame` is read by Spark; one annotated `Snapshot` needs no JVM.
    """

    root: str = Field(description="Folder of all snapshots, seen by Spark and by every run.")
    spark: dg.ResourceDependency[LazyPySparkResource]

    def snapshot(self, asset_key: str) -> Snapshot | None:
        """The newest snapshot of a model; "a/b" is an asset key of two parts."""
        return newest(Path(self.root), asset_key)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write a snapshot; its fingerprint becomes the asset's data version."""
        if obj is None:
            return
        asset_key = context.asset_key.to_user_string()
        if not isinstance(obj, DataFrame):
            raise TypeError(
                f'Model "{asset_key}" returned {type(obj).__name__}: return a Spark DataFrame, '
                "or give the asset another io_manager_key."
            )
        if context.has_asset_partitions:
            raise NotImplementedError(
                f'Model "{asset_key}" is partitioned, which snapshots do not support yet: '
                "remove its partitions_def."
            )
        started = time.monotonic()
        folder = new_folder(Path(self.root).resolve(), asset_key)
        snapshot = write_snapshot(obj, folder, asset_key=asset_key, run_id=context.run_id)
        dg.AssetExecutionContext.get().set_data_version(
            context.asset_key, dg.DataVersion(snapshot.data_version)
        )
        context.add_output_metadata(_metadata(snapshot, seconds=time.monotonic() - started))

    def load_input(self, context: dg.InputContext) -> DataFrame | Snapshot:
        """Read the newest snapshot of an upstream model."""
        asset_key = context.asset_key.to_user_string()
        snapshot = self.snapshot(asset_key)
        if snapshot is None:
            raise dg.Failure(
                f'Model "{asset_key}" has no snapshot in {self.root}: materialize it first.'
            )
        if context.dagster_type.typing_type is Snapshot:
            return snapshot
        schema = ", ".join(
            f"`{column.name.replace('`', '``')}` {column.type}" for column in snapshot.columns
        )
        files = [spark_path(snapshot.folder / file.name) for file in snapshot.files]
        return self.spark.spark_session.read.schema(schema).parquet(*files)


def _metadata(snapshot: Snapshot, *, seconds: float) -> dict[str, Any]:
    columns = [dg.TableColumn(column.name, column.type) for column in snapshot.columns]
    return {
        "dagster/row_count": snapshot.fingerprint.rows,
        "dagster/uri": snapshot.folder.as_uri(),
        "dagster/column_schema": dg.TableSchema(columns=columns),
        "fingerprint": snapshot.data_version,
        "bytes": snapshot.size,
        "seconds": round(seconds, 3),
    }
