"""The row hash: a 64-bit number that identifies the content of a row. Spark computes it."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tableau_pipeline.core.snapshot import Fingerprint
from tableau_pipeline.hyper.types import ROW_HASH

# In rows and bytes: without a buffer, pyarrow reads the hashes of a whole row group at once.
_BATCH, _BUFFER = 65_536, 1 << 20
_NESTED = (T.ArrayType, T.MapType, T.StructType, T.VariantType)
# By default, JSON would omit nulls and everything below milliseconds.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def row_hash(schema: T.StructType) -> Column:
    """Return the hash of a row with this schema.

    Spark's hash functions skip NULLs, so (1, NULL) and (NULL, 1) would be equal. Therefore the hash
    includes which values are NULL. The functions also ignore the bounds of arrays and refuse maps
    and variants, so nested values are hashed as JSON text.
    """
    # Names and F.isnull, as each F.col and each method of a column is a dozen calls to the JVM.
    nulls = [F.isnull(_quoted(field.name)) for field in schema.fields]
    return F.xxhash64(*[_hashable(field) for field in schema.fields], *nulls)


def stored_fingerprint(files: Iterable[Path]) -> Fingerprint:
    """Return the fingerprint of all rows of Parquet files; needs the same memory for any size."""
    rows = total = 0
    for file in files:
        with pq.ParquetFile(file, buffer_size=_BUFFER) as opened:
            for batch in opened.iter_batches(_BATCH, columns=[ROW_HASH], use_threads=False):
                rows += batch.num_rows
                # A sum of 64-bit hashes does not fit into 64 bits.
                hashes = batch.column(0).cast(pa.decimal128(38, 0))
                total += int(pc.call_function("sum", [hashes]).as_py() or 0)
    return Fingerprint(rows=rows, hash_sum=total)


def json_values(schema: T.StructType) -> dict[str, Column]:
    """Return the nested columns by name, as JSON text that differs for different values."""
    nested = (field.name for field in schema.fields if isinstance(field.dataType, _NESTED))
    return {name: _json(name) for name in nested}


def column(name: str) -> Column:
    """Return a column by its name, which may contain dots and backticks."""
    return F.col(_quoted(name))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _hashable(field: T.StructField) -> Column | str:
    if isinstance(field.dataType, _NESTED):
        return _json(field.name)
    if isinstance(field.dataType, T.StringType) and field.dataType != T.StringType():
        # Texts that a collation considers equal are still different rows.
        return column(field.name).cast(T.StringType())
    return _quoted(field.name)


def _json(name: str) -> Column:
    return F.to_json(column(name), _JSON)
