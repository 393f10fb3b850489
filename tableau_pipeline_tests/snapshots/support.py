"""Snapshots as the pipeline writes them, versions without Spark, and models run by Dagster."""

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
    """Run these assets on snapshots below this root."""
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


def store(frame: DataFrame, root: Path, asset_key: str = "model") -> Snapshot:
    """A new version of a model below this root."""
    return write_snapshot(frame, SnapshotStore(root), asset_key=asset_key, run_id="run")


def store_partitions(
    frame: DataFrame, root: Path, expression: str, partitions: Mapping[str, Span] | Sequence[str]
) -> Snapshot:
    """The version after partitions of the model were written."""
    return write_partitions(
        frame,
        SnapshotStore(root),
        expression=expression,
        partitions=partitions,
        asset_key="model",
        run_id="test",
    )


def newest(root: Path, asset_key: str = "model") -> Snapshot:
    """The newest version of a model."""
    found = SnapshotStore(root).newest(asset_key)
    assert found
    return found


def rows(snapshot: Snapshot | None) -> dict[str | None, int]:
    """How many rows each part has."""
    return {part.partition: part.fingerprint.rows for part in snapshot.parts} if snapshot else {}


COLUMNS = (Column("id", "bigint"),)


class CountingStorage(Proxy):
    """Counts the requests, by kind."""

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
    """Files of a write that is not committed yet, one for each partition."""
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
    """Write some partitions of a model, or all of it, without its rows."""
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
    """The file that commits a version of the model "model"."""
    return store.root / store.manifest("model", number)


def models(store: SnapshotStore) -> set[str]:
    """All models that were ever written."""
    return {found[0] for entry in store.storage.list("") if (found := parse_key(entry.key))}


def age(root: Path, days: float) -> None:
    """Let everything below a folder seem so many days older than it is."""
    seconds = timedelta(days=days).total_seconds()
    for path in [root, *root.rglob("*")]:
        stat = path.stat()
        os.utime(path, (stat.st_atime - seconds, stat.st_mtime - seconds))
