"""The models of a data source, as the location declares them now."""

from collections.abc import Mapping
from dataclasses import dataclass

import dagster as dg

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.resources import SnapshotIOManager


@dataclass(frozen=True, slots=True)
class ModelSnapshots:
    """Implements `core.snapshot.Snapshots` for the models of a step.

    Attributes:
        definitions: how models are partitioned, by asset key: what was stored by an earlier
            definition is no part of a model. None of a model that another location declares.
    """

    snapshots: SnapshotIOManager
    definitions: Mapping[str, dg.PartitionsDefinition | None]

    def newest(self, asset_key: str) -> Snapshot | None:
        """The newest version of a model; None if it has none."""
        return self.snapshots.snapshot(asset_key, self.definitions.get(asset_key))

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """A version of a model; None if it is gone."""
        return self.snapshots.store.version(asset_key, number)


def partitions_of(
    context: dg.AssetExecutionContext, models: tuple[str, ...]
) -> dict[str, dg.PartitionsDefinition | None]:
    """How these models are partitioned, as far as this location declares them."""
    graph = context.job_def.asset_layer.asset_graph
    keys = {model: dg.AssetKey.from_user_string(model) for model in models}
    return {model: graph.get(key).partitions_def for model, key in keys.items() if graph.has(key)}
