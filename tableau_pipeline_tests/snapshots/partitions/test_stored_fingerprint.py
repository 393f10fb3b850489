"""The fingerprint of a partition, computed from its files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tableau_pipeline.hyper.types import ROW_HASH
from tableau_pipeline.snapshots.row_hash import stored_fingerprint

_MANY = 3_000_000


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """Prevents a driver that holds the hashes of a whole partition."""
    needed = []
    for rows in (_MANY // 10, _MANY):
        path = tmp_path / f"{rows}.parquet"
        hashes = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, rows)
        pq.write_table(pa.table({ROW_HASH: hashes}), path, row_group_size=rows)
        with measured() as pool:
            assert stored_fingerprint([path]).rows == rows
        needed.append(pool.max_memory())
    few, many = needed
    assert 0 < many < 1.2 * few < _MANY * 8 / 2


@contextmanager
def measured() -> Iterator[pa.MemoryPool]:
    """A pool of Arrow's memory that knows the most that was used of it."""
    former = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(former)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(former)
