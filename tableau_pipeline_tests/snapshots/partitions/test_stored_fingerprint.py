"""The fingerprint of a partition, computed from its files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.hyper.tables import ROW_HASH
from tableau_pipeline.snapshots.row_hash import stored_fingerprint

_hashes = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9)
_MANY = 3_000_000


@given(files=st.lists(_hashes, max_size=3), group=st.integers(1, 4))
@example(files=[[2**63 - 1] * 3, [-(2**63)] * 7], group=2)
@settings(max_examples=25, derandomize=True)
def test_the_sum_is_that_of_all_hashes(files: list[list[int]], group: int) -> None:
    """Prevents a fingerprint of a part of the rows, or a sum that overflows."""
    with TemporaryDirectory() as folder:
        # Named as Spark names the folder of a partition, which is not a column here.
        paths = [Path(folder, "_partition=1", f"{number}.parquet") for number in range(len(files))]
        for path, hashes in zip(paths, files, strict=True):
            path.parent.mkdir(exist_ok=True)
            columns = {"id": pa.array(range(len(hashes))), ROW_HASH: pa.array(hashes, pa.int64())}
            pq.write_table(pa.table(columns), path, row_group_size=group)
        found = stored_fingerprint(paths)
    everything = [value for hashes in files for value in hashes]
    assert found == Fingerprint(rows=len(everything), hash_sum=sum(everything))


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
