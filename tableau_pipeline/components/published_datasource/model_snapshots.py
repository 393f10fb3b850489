"""The snapshots of a data source's models, by their current definitions."""

from collections.abc import Mapping
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.core.snapshot import Snapshot, Snapshots
from tableau_pipeline.lake.snapshots import with_lakes
from tableau_pipeline.resources import SnapshotIOManager


@dataclass(frozen=True, slots=True)
class ModelSnapshots:
    """Implements `core.snapshot.Snapshots` for the models of a step.

    Attributes:
        definitions: the partitions definition of each model, by asset key. Partitions that only
            an earlier definition had are ignored. None for models of other code locations.
    """

    snapshots: SnapshotIOManager
    definitions: Mapping[str, dg.PartitionsDefinition | None]

    def newest(self, asset_key: str) -> Snapshot | None:
        """Return the newest version of a model; None if it has none."""
        return self.snapshots.snapshot(asset_key, self.definitions.get(asset_key))

    def version(self, asset_key: str, number: int) -> Snapshot | None:
        """Return a version of a model; None if it was removed."""
        return self.snapshots.store.version(asset_key, number)


def snapshots_of(
    declaration: Declaration,
    snapshots: SnapshotIOManager,
    definitions: Mapping[str, dg.PartitionsDefinition | None],
) -> Snapshots:
    """Return the snapshots of a data source's models, tables of lakes included."""
    return with_lakes(ModelSnapshots(snapshots, definitions), declaration, snapshots.copies)


def partitions_of(
    graph: AssetGraph, models: tuple[str, ...]
) -> dict[str, dg.PartitionsDefinition | None]:
    """Return the partitions definitions of these models, where the graph has them."""
    keys = {model: dg.AssetKey.from_user_string(model) for model in models}
    return {model: graph.get(key).partitions_def for model, key in keys.items() if graph.has(key)}
