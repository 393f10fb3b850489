"""Models and their readers, run by Dagster as a user's project would run them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline.resources import SparkResource
from tableau_pipeline.resources.snapshots import SnapshotIOManager


def materialize(
    root: Path | str,
    assets: Sequence[Any],
    *,
    instance: dg.DagsterInstance | None = None,
    select: str | None = None,
) -> dg.ExecuteInProcessResult:
    """Run these assets on snapshots below this root."""
    spark = SparkResource(master="local[2]", spark_config={"spark.sql.shuffle.partitions": "2"})
    manager = SnapshotIOManager(root=str(root), spark=spark)
    return dg.materialize(
        assets,
        resources={"spark": spark, "io_manager": manager},
        instance=instance or dg.DagsterInstance.ephemeral(),
        selection=select,
    )


def reader(seen: list[Any], upstream: str, annotation: type) -> dg.AssetsDefinition:
    """An asset that looks at what it gets of the upstream model."""

    def read(data: Any) -> None:
        seen.append(data)

    read.__annotations__ = {"data": annotation, "return": None}
    upstream_key = dg.AssetKey.from_user_string(upstream)
    return dg.asset(name="reader", ins={"data": dg.AssetIn(upstream_key)})(read)


def model(frame: DataFrame, key: str = "model") -> dg.AssetsDefinition:
    """A model of these rows."""

    def build() -> DataFrame:
        return frame

    return dg.asset(key=dg.AssetKey.from_user_string(key))(build)
