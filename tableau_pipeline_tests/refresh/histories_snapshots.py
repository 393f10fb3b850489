"""Snapshots of models in a history, as Spark leaves them, written by Arrow."""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.core.snapshot import (
    MANIFEST,
    ROW_HASH,
    DataFile,
    Fingerprint,
    Snapshot,
    Span,
)
from tableau_pipeline.hyper.tables import Column
from tableau_pipeline_tests.refresh.histories_tables import Model
from tableau_pipeline_tests.refresh.histories_values import ARROW


@dataclass
class Snapshots:
    """A folder of snapshots, and the newest ones of each model."""

    folder: Path
    newest: dict[str, tuple[Snapshot, ...]] = field(default_factory=dict)
    _written: dict[str, dict[str | None, tuple[object, Snapshot]]] = field(default_factory=dict)

    def store(self, model: Model, *, all_partitions: bool) -> None:
        """Write a model, or those of its partitions that changed."""
        before = self._written.get(model.name, {})
        after = {}
        for key, part in model.parts().items():
            schema = part.schema
            rows = [row.values for row in part.rows]
            if key is not None and key == part.stale:
                schema, rows = {**schema, "old": "int"}, [(*row, 1) for row in rows]
            content = (list(schema.items()), repr(rows))
            known = before.get(key)
            if known and known[0] == content and not all_partitions:
                after[key] = known
                continue
            span = model.partitioning.span(key) if model.partitioning and key else None
            written = write(
                self.folder, schema, rows, asset_key=model.name, partition=key, span=span
            )
            after[key] = content, written
        self._written[model.name] = after
        self.newest[model.name] = tuple(snapshot for _, snapshot in after.values())

    def store_rows(self, name: str, schema: Mapping[str, str], rows: Sequence[tuple]) -> None:
        """Write a model that is no table of the data source."""
        self.newest[name] = (write(self.folder, schema, rows, asset_key=name),)

    def collect(self) -> int:
        """Remove all snapshots but the newest; how many that were."""
        needed = {each.folder for snapshots in self.newest.values() for each in snapshots}
        old = [path.parent for path in self.folder.rglob(MANIFEST) if path.parent not in needed]
        for folder in old:
            shutil.rmtree(folder)
        return len(old)


def write(
    folder: Path,
    schema: Mapping[str, str],
    rows: Sequence[tuple],
    *,
    asset_key: str,
    partition: str | None = None,
    span: Span | None = None,
) -> Snapshot:
    """Write a committed snapshot, of two files if there are rows for two."""
    folder = folder / asset_key / uuid4().hex
    folder.mkdir(parents=True)
    hashes = [_hash(row) for row in rows]
    table = pa.table(
        {
            **{
                name: pa.array([row[n] for row in rows], ARROW[type_])
                for n, (name, type_) in enumerate(schema.items())
            },
            ROW_HASH: pa.array(hashes, pa.int64()),
        }
    )
    half = (table.num_rows + 1) // 2
    parts = [table.slice(0, half)] + ([table.slice(half)] if table.num_rows > half else [])
    written = Snapshot(
        folder=folder,
        asset_key=asset_key,
        partition=partition,
        span=span,
        created_at=datetime.now(UTC),
        run_id="test",
        columns=tuple(Column(name, type_) for name, type_ in schema.items()),
        fingerprint=Fingerprint(rows=len(rows), hash_sum=sum(hashes)),
        files=tuple(_file(folder, number, part) for number, part in enumerate(parts)),
    )
    (folder / MANIFEST).write_text(written.manifest(), encoding="utf-8")
    return written


def _hash(row: tuple) -> int:
    digest = hashlib.sha256(repr(row).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _file(folder: Path, number: int, rows: pa.Table) -> DataFile:
    path = folder / f"part-{number:05}.parquet"
    pq.write_table(rows, path)
    return DataFile(name=path.name, rows=rows.num_rows, size=path.stat().st_size)
