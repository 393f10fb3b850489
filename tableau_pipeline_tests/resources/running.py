"""Models that ask whether they are unchanged, and where they run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.resources import SnapshotIOManager, SparkResource, unchanged
from tableau_pipeline_tests.snapshots.support.samples import newest

# How many rows the sources have, which are their version, too.
SOURCE = {"rows": 3}
RAN: list[str] = []


class Limit(dg.Config):
    rows: int = 100
    force: bool = False


def limited(code_version: str | None = "1") -> dg.AssetsDefinition:
    """A model of its sources, and of run config."""

    @dg.asset(name="model", code_version=code_version)
    def build(
        context: dg.AssetExecutionContext, config: Limit, spark: SparkResource
    ) -> DataFrame | None:
        if unchanged(context, f"{SOURCE['rows']} rows"):
            return None
        RAN.append("model")
        return spark.spark_session.range(min(SOURCE["rows"], config.rows))

    return build


def reader(*deps: str) -> dg.AssetsDefinition:
    """A model of that model, after others."""

    @dg.asset(name="reader", code_version="1", deps=deps)
    def build(
        context: dg.AssetExecutionContext, model: Snapshot, spark: SparkResource
    ) -> DataFrame | None:
        if unchanged(context, "nothing else"):
            return None
        RAN.append("reader")
        return spark.spark_session.range(model.fingerprint.rows)

    return build


@dataclass
class Location:
    """Where models run."""

    root: Path
    instance: dg.DagsterInstance = field(default_factory=dg.DagsterInstance.ephemeral)

    def run(self, assets: Sequence[Any], select: str | None = None, **changes: Any) -> list[str]:
        """Run these assets; return which of them have computed something."""
        spark = SparkResource()
        manager = SnapshotIOManager(root=str(self.root), spark=spark)
        RAN.clear()
        result = dg.materialize(
            assets,
            resources={"spark": spark, "io_manager": manager},
            instance=self.instance,
            selection=select,
            **changes,
        )
        assert result.success
        return [*RAN]

    def materialization(self, key: str = "model") -> dg.AssetMaterialization:
        event = self.instance.get_latest_materialization_event(dg.AssetKey(key))
        assert event
        assert event.asset_materialization
        return event.asset_materialization

    def version(self, key: str = "model") -> int:
        found = newest(self.root, key)
        assert found
        return found.number
