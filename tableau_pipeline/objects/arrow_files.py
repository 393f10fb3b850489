"""Write and read Parquet files in an object store, in Spark's tasks, with pyarrow.

So Spark needs no connector for the store. Its executors need `pyarrow` and `obstore`, but not this
package. The executors receive only this module and `errors`, so this module may import no other
module of the package.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from obstore.store import ObjectStore, from_url

from tableau_pipeline.objects.errors import ObjectStoreTaskError, translate_errors

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

# The key under which Spark stores its own schema in a Parquet file.
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
# The columns of a task's report about each file, as Spark's DDL. A task reports rows without a
# partition as a file without a name.
REPORT = "partition string, name string, rows long, size long, hash_sum decimal(38,0)"
_REPORT = pa.schema(
    [
        ("partition", pa.string()),
        ("name", pa.string()),
        ("rows", pa.int64()),
        ("size", pa.int64()),
        ("hash_sum", pa.decimal128(38, 0)),
    ]
)
# The size in bytes from which rows are written as a row group, and the most rows of a batch that is
# read. Each task that writes keeps one row group in memory.
_ROW_GROUP, _BATCH = 32 << 20, 65_536
# Give up a request after a minute without a transfer, or after an hour in all, because large files
# may take long. By default, obstore would give up every request after half a minute, even during
# the transfer.
_CLIENT: "ClientConfig" = {
    "timeout": timedelta(hours=1),
    "read_timeout": timedelta(minutes=1),
    # Like the stores' own SDKs, accept an endpoint that begins with http://.
    "allow_http": True,
}
_RETRY: "RetryConfig" = {"retry_timeout": timedelta(hours=1)}


def open_store(url: str, **others: Any) -> ObjectStore:
    """Open the store whose objects are below a URL.

    Variables of the environment, such as AWS_ACCESS_KEY_ID, provide the endpoint and the
    credentials.

    Args:
        others: arguments of obstore, which override settings of the environment.
    """
    return from_url(url, client_options=_CLIENT, retry_config=_RETRY, **others)


@dataclass(frozen=True)
class Writer:
    """Writes the rows of a task to files; Spark calls the writer in each task.

    Attributes:
        url: the URL of the store.
        folder: the key of the folder for the files.
        spark_schema: Spark's schema of the rows, as JSON.
        columns: the names of the columns in the files.
        row_hash: the position of the column with the hash of each row.
        by_partition: whether the rows have a further column with the partition of each row. The
            rows of a task are sorted by this column, and the task writes one file for each
            partition.
    """

    url: str
    folder: str
    spark_schema: str
    columns: Sequence[str]
    row_hash: int
    by_partition: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write files; yield a report about each file."""
        store = _open_in_task(self.url)
        file: _File | None = None
        unassigned_rows = 0
        for batch in batches:
            for key, rows in self._by_partition(batch):
                if self.by_partition and key is None:
                    unassigned_rows += rows.num_rows
                    continue
                if file and file.key != key:
                    yield file.close()
                    file = None
                if file is None:
                    file = _File(self, store, key, rows.schema)
                file.write(rows)
        if file:
            yield file.close()
        if unassigned_rows:
            yield _report(None, "", unassigned_rows, 0, 0)

    def empty(self, key: str | None, schema: pa.Schema) -> tuple[str, int]:
        """Write a file without rows, for a partition, or for a whole model if `key` is None.

        Args:
            schema: a schema that begins with the columns of the file, perhaps under other names.

        Returns:
            The name of the file, and its size in bytes.
        """
        # Ignore the last field of the schema if it is the partition: the files do not contain it.
        fields = [
            column.with_name(name) for column, name in zip(schema, self.columns, strict=False)
        ]
        (report,) = _File(self, _open_in_task(self.url), key, pa.schema(fields)).close().to_pylist()
        return report["name"], report["size"]

    def _by_partition(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        count = len(self.columns)
        rows = batch.select([*range(count)]).rename_columns([*self.columns])
        if not self.by_partition:
            yield None, rows
            return
        keys = batch.column(count)
        runs = pc.call_function("run_end_encode", [keys])
        start = 0
        for key, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield key, rows.slice(start, end - start)
            start = end


@dataclass
class _File:
    """A file that is being written."""

    writer: Writer
    store: ObjectStore
    key: str | None
    schema: pa.Schema
    rows: int = 0
    hash_sum: int = 0
    # Collect the small batches that Spark passes, because each write makes a new row group.
    _waiting: list[pa.RecordBatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Give each partition a folder, so that a replaced partition can be removed.
        folder = "" if self.key is None else f"{quote(self.key, safe='')}/"
        self.name = f"{folder}part-{uuid4().hex}.parquet"
        # Write to the local disk first, and send only the complete file, so that a killed task
        # leaves no object.
        self._local = TemporaryFile()  # noqa: SIM115 - closed below, or with the task
        metadata = {SPARK_SCHEMA: self.writer.spark_schema.encode()}
        self.schema = pa.schema([_nullable_field(field) for field in self.schema], metadata)
        self._parquet = pq.ParquetWriter(self._local, self.schema)

    def write(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        # Add hashes as decimals, because a sum of 64-bit hashes may need more than 64 bits.
        hashes = rows.column(self.writer.row_hash).cast(pa.decimal128(38, 0))
        self.hash_sum += int(pc.call_function("sum", [hashes]).as_py() or 0)
        self._waiting.append(rows)
        if sum(batch.nbytes for batch in self._waiting) >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        self._parquet.write_table(pa.Table.from_batches(self._waiting).cast(self.schema))
        self._waiting = []

    def close(self) -> pa.RecordBatch:
        if self._waiting:
            self._flush()
        self._parquet.close()
        size = self._local.tell()
        self._local.seek(0)
        key = f"{self.writer.folder}/{self.name}"
        with self._local as content, _task_errors("Writing", f"{self.writer.url}/{key}"):
            obstore.put(self.store, key, content)
        return _report(self.key, self.name, self.rows, size, self.hash_sum)


@dataclass(frozen=True)
class ObjectReader:
    """Reads files; Spark calls the reader with rows that contain the keys of files.

    Attributes:
        columns: the columns to read.
        names: the names that Spark expects for these columns, in the same order.
    """

    url: str
    columns: Sequence[str]
    names: Sequence[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files."""
        store = _open_in_task(self.url)
        for batch in batches:
            for key in batch.column(0).to_pylist():
                with TemporaryFile() as content:
                    with _task_errors("Reading", f"{self.url}/{key}"):
                        # Download the whole file with one request; reading columns would take
                        # several requests.
                        for chunk in obstore.get(store, key).stream():
                            content.write(chunk)
                    content.seek(0)
                    file = pq.ParquetFile(content)
                    for rows in file.iter_batches(_BATCH, columns=[*self.columns]):
                        yield rows.select([*self.columns]).rename_columns([*self.names])


def _open_in_task(url: str) -> ObjectStore:
    with _task_errors("Opening", url):
        return open_store(url)


def _task_errors(doing: str, url: str) -> AbstractContextManager[None]:
    return translate_errors(doing, url, kind=ObjectStoreTaskError)


def _nullable_type(type_: pa.DataType) -> pa.DataType:
    """Return a type whose nested fields may all be NULL.

    Spark may declare that the fields of a struct are never NULL. Then Arrow would also refuse a
    struct that is NULL itself.
    """
    match type_:
        case pa.StructType():
            return pa.struct([_nullable_field(field) for field in type_])
        case pa.MapType():
            return pa.map_(type_.key_type, _nullable_field(type_.item_field))
        case pa.ListType():
            return pa.list_(_nullable_field(type_.value_field))
        case _:
            return type_


def _nullable_field(field: pa.Field) -> pa.Field:
    return field.with_type(_nullable_type(field.type)).with_nullable(True)


def _report(*values: str | int | None) -> pa.RecordBatch:
    """Return a report about one file; the values have the order of the columns in `REPORT`."""
    row = dict(zip(_REPORT.names, values, strict=True))
    return pa.RecordBatch.from_pylist([row], schema=_REPORT)
