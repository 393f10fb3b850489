"""Write versions of a model with a few rows of numbers and texts, without Spark."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Part, Snapshot
from tableau_pipeline.hyper.types import ROW_HASH, Column
from tableau_pipeline.snapshots.version_store import SnapshotStore

_ALGORITHM = "sha256-text"
_SPARK_TYPES = {pa.int64(): "bigint", pa.string(): "string"}


def write_model(store: SnapshotStore, model: str, rows: pa.Table) -> Snapshot:
    """Store rows as the next version of a model.

    Args:
        store: a store in a local folder.
        rows: the rows; all columns have the type int64 or string.
    """
    name = f"{store.new_folder()}/part-0.parquet"
    folder = store.folder(model)
    path = Path(folder.full_name(name))
    path.parent.mkdir(parents=True)
    hashes = [_hash_of(row) for row in rows.to_pylist()]
    pq.write_table(rows.append_column(ROW_HASH, pa.array(hashes, pa.int64())), path)
    file = DataFile(name=name, rows=rows.num_rows, size=path.stat().st_size)
    content = Fingerprint(rows=rows.num_rows, hash_sum=sum(hashes), algorithm=_ALGORITHM)

    def version(number: int, _: Snapshot | None) -> Snapshot:
        return Snapshot(
            folder=folder,
            comments={},
            asset_key=model,
            number=number,
            created_at=datetime.now(UTC),
            run_id="trial",
            columns=tuple(Column(field.name, _SPARK_TYPES[field.type]) for field in rows.schema),
            parts=(Part(version=number, fingerprint=content, files=(file,)),),
        )

    return store.commit(model, version)


def _hash_of(row: dict[str, int | str | None]) -> int:
    digest = hashlib.sha256(repr([*row.values()]).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
