"""Snapshots as a model's Spark asset leaves them. Arrow makes them, so no JVM is needed."""

import hashlib
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.core.snapshot import DataFile, Fingerprint, Part, Snapshot, Span
from tableau_pipeline.hyper.types import ROW_HASH, Column
from tableau_pipeline.snapshots.version_store import SnapshotStore, merged_parts

_SPARK_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
    pa.list_(pa.int64()): "array<bigint>",
}


def spark_name(type_: pa.DataType) -> str:
    """Spark's name of a type."""
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return _SPARK_NAMES[type_]


def snapshot(
    root: Path,
    rows: pa.Table,
    *,
    asset_key: str = "flights",
    partition: str | None = None,
    span: Span | None = None,
    without: Collection[str] = (),
    comments: Mapping[str, str] = MappingProxyType({}),
) -> Snapshot:
    """Commit `rows` as the next version of a model in the store at `root`, in two files.

    Args:
        partition: the partition of the rows; the model's other partitions stay as they are.
        without: partitions that the model no longer has.
    """
    store = SnapshotStore(root)
    model = store.folder(asset_key).path
    folder = model / store.new_folder()
    fingerprint, files = written(rows, folder, below=model)
    columns = tuple(Column(field.name, spark_name(field.type)) for field in rows.schema)

    def make(number: int, before: Snapshot | None) -> Snapshot:
        part = Part(
            partition=partition, span=span, version=number, fingerprint=fingerprint, files=files
        )
        return Snapshot(
            folder=store.folder(asset_key),
            comments=dict(comments),
            asset_key=asset_key,
            number=number,
            created_at=datetime.now(UTC),
            run_id="test",
            columns=columns,
            parts=merged_parts(
                before, [part], columns=columns, keeps=lambda part: part.partition not in without
            ),
        )

    return store.commit(asset_key, make)


def written(
    rows: pa.Table, folder: Path, *, below: Path
) -> tuple[Fingerprint, tuple[DataFile, ...]]:
    """Write rows to two files, with a hash of each row in place of Spark's hash.

    Args:
        below: the folder of the model, to which the names of files are relative.
    """
    folder.mkdir(parents=True, exist_ok=True)
    hashes = [_hash_of(list(row.values())) for row in rows.to_pylist()]
    hashed = rows.append_column(ROW_HASH, pa.array(hashes, pa.int64()))
    half = (rows.num_rows + 1) // 2
    files = []
    for number, each in enumerate((hashed.slice(0, half), hashed.slice(half))):
        path = folder / f"part-{number:05}.parquet"
        pq.write_table(each, path)
        name = path.relative_to(below).as_posix()
        files.append(DataFile(name=name, rows=each.num_rows, size=path.stat().st_size))
    return Fingerprint(rows=rows.num_rows, hash_sum=sum(hashes)), tuple(files)


def _hash_of(row: object) -> int:
    digest = hashlib.sha256(repr(row).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def flights(rows: int = 8, *, delay: int = 0, **more: pa.Array) -> pa.Table:
    """A fact table. `delay` changes its content, and `more` has additional columns."""
    numbers = range(rows)
    return pa.table(
        {
            "flight_id": pa.array(numbers, pa.int64()),
            "carrier": pa.array([("AA", "UA")[number % 2] for number in numbers], pa.string()),
            "delay": pa.array([number + delay for number in numbers], pa.int32()),
            **more,
        }
    )


def airlines(*codes: str | None) -> pa.Table:
    """A dimension, with the key `carrier`."""
    codes = codes or ("AA", "UA")
    names = [f"{code} Inc." for code in codes]
    return pa.table({"carrier": pa.array(codes, pa.string()), "name": pa.array(names)})
