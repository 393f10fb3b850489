"""The fingerprint of rows in files, from the hashes that are stored with them."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tableau_pipeline.core.snapshot import ROW_HASH, Fingerprint

_ROWS_AT_ONCE = 65_536
# Without a buffer, pyarrow reads the hashes of a whole row group at once.
_BUFFER = 1 << 20


def stored_fingerprint(files: Iterable[Path]) -> Fingerprint:
    """Return the fingerprint of all rows of Parquet files; needs the same memory for any size."""
    rows = total = 0
    for file in files:
        with pq.ParquetFile(file, buffer_size=_BUFFER) as opened:
            for batch in opened.iter_batches(_ROWS_AT_ONCE, columns=[ROW_HASH], use_threads=False):
                rows += batch.num_rows
                # A sum of 64-bit hashes does not fit into 64 bits.
                hashes = batch.column(0).cast(pa.decimal128(38, 0))
                total += int(pc.call_function("sum", [hashes]).as_py() or 0)
    return Fingerprint(rows=rows, hash_sum=total)
