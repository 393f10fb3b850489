"""Write snapshots with Spark, commit versions without Spark, and run models in Dagster."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame

from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Part, Snapshot, Span
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.resources import SparkResource
from tableau_pipeline.resources.snapshots import SnapshotIOManager
from tableau_pipeline.snapshots.version_store import (
    SnapshotStore,
    commit_parts,
    merged_parts,
    model_key,
    parse_key,
)
from tableau_pipeline.snapshots.write import write_partitions, write_snapshot
from tableau_pipeline_tests.refresh.support.proxies import Proxy


def materialize(
    root: Path | str,
    assets: Sequence[Any],
    *,
    instance: dg.DagsterInstance | None = None,
    select: str | None = None,
    partition_key: str | None = None,
) -> dg.ExecuteInProcessResult:
    """Materialize assets in Dagster, with their snapshots below `root`."""
    spark = SparkResource(master="local[2]", spark_config={"spark.sql.shuffle.partitions": "2"})
    manager = SnapshotIOManager(root=str(root), spark=spark)
    return dg.materialize(
        assets,
        resources={"spark": spark, "io_manager": manager},
        instance=instance or dg.DagsterInstance.ephemeral(),
        selection=select,
        partition_key=partition_key,
    )


def reader(seen: list[Any], upstream: str, annotation: type) -> dg.AssetsDefinition:
    """Return an asset that appends the data of its upstream model to `seen`."""

    def read(data: Any) -> None:
        seen.append(data)

    read.__annotations__ = {"data": annotation, "return": None}
    upstream_key = dg.AssetKey.from_user_string(upstream)
    return dg.asset(name="reader", ins={"data": dg.AssetIn(upstream_key)})(read)


def model(frame: DataFrame, key: str = "model") -> dg.AssetsDefinition:
    """Return a model that returns this frame."""

    def build() -> DataFrame:
        return frame

    return dg.asset(key=dg.AssetKey.from_user_string(key))(build)


def store(frame: DataFrame, root: Path, asset_key: str = "model") -> Snapshot:
    """Write a new version of a model below `root`."""
    return write_snapshot(frame, SnapshotStore(root), asset_key=asset_key, run_id="run")


def store_partitions(
    frame: DataFrame, root: Path, expression: str, partitions: Mapping[str, Span] | Sequence[str]
) -> Snapshot:
    """Write partitions of the model "model", and return its new version."""
    return write_partitions(
        frame,
        SnapshotStore(root),
        expression=expression,
        partitions=partitions,
        asset_key="model",
        run_id="test",
    )


def newest(root: Path, asset_key: str = "model") -> Snapshot:
    """Return the newest version of a model."""
    found = SnapshotStore(root).newest(asset_key)
    assert found
    return found


def rows(snapshot: Snapshot | None) -> dict[str | None, int]:
    """Return the number of rows of each part, by partition."""
    return {part.partition: part.fingerprint.rows for part in snapshot.parts} if snapshot else {}


COLUMNS = (Column("id", "bigint"),)


class CountingStorage(Proxy):
    """A storage that counts requests by kind."""

    def __init__(self, behind: Any) -> None:
        super().__init__(behind)
        self.calls: Counter[str] = Counter()

    def before(self, name: str, args: Sequence[Any]) -> None:
        if name != "folder":
            self.calls[name] += 1


def written(
    store: SnapshotStore,
    partitions: Iterable[str | None],
    *,
    asset_key: str = "model",
    rows: int = 1,
    span: Span | None = None,
) -> list[Part]:
    """Write a file for each partition, and return the parts, which are not committed yet."""
    folder = store.new_folder()
    parts = []
    for key in partitions:
        name = f"{folder}/_partition={key}/part-0.parquet" if key else f"{folder}/part-0.parquet"
        store.storage.put(f"{model_key(asset_key)}/{name}", str(rows).encode())
        file = DataFile(name=name, rows=rows, size=1)
        fingerprint = Fingerprint(rows=rows, hash_sum=rows)
        parts.append(
            Part(partition=key, span=span, version=0, fingerprint=fingerprint, files=(file,))
        )
    return parts


def commit(
    store: SnapshotStore,
    *partitions: str,
    asset_key: str = "model",
    rows: int = 1,
    columns: tuple[Column, ...] = COLUMNS,
) -> Snapshot:
    """Commit a version, with partitions if any are given; its files are no real Parquet files."""
    parts = written(store, partitions or (None,), asset_key=asset_key, rows=rows)

    return commit_parts(
        store,
        asset_key,
        parts,
        columns=columns,
        comments={},
        run_id="test",
        parts=lambda new, before: merged_parts(before, new, columns=columns, keeps=lambda _: True),
    )


def manifest(store: SnapshotStore, number: int) -> Path:
    """Return the file that commits a version of the model "model"."""
    return store.root / store.manifest("model", number)


def models(store: SnapshotStore) -> set[str]:
    """Return all models of which the store has an entry."""
    return {found[0] for entry in store.storage.list("") if (found := parse_key(entry.key))}


def age(root: Path, days: float) -> None:
    """Make a folder and everything in it seem `days` older."""
    seconds = timedelta(days=days).total_seconds()
    for path in [root, *root.rglob("*")]:
        stat = path.stat()
        os.utime(path, (stat.st_atime - seconds, stat.st_mtime - seconds))
