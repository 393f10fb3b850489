"""Without Spark, make versions of models from Parquet files that this process has written.

These versions have no row hashes: hyperd computes the hashes when a refresh compares two versions.
The fingerprint of such a version is a digest of its files.
"""

import hashlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import obstore
import pyarrow.parquet as pq

from tableau_pipeline.core.snapshot import FILES_DIGEST, DataFile, Fingerprint, Part
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.hyper.parquet import LocalFolder, StoredColumn, plain_layout
from tableau_pipeline.hyper.types import Column
from tableau_pipeline.objects.local_files import scratch
from tableau_pipeline.objects.stores import ObjectFolder, store_at, store_errors
from tableau_pipeline.outcome import Code
from tableau_pipeline.snapshots.version_store import SnapshotStore, new_write, reserved_names


@contextmanager
def new_files(store: SnapshotStore, asset_key: str) -> Generator[tuple[str, Path]]:
    """Yield the name of a new folder for files of a model, and the local path to write them to.

    If the model is in an object store, the files are uploaded at the end of the block. If the block
    fails, the files are removed as in `new_write`.
    """
    model = store.folder(asset_key)
    with new_write(store, asset_key) as folder:
        if isinstance(model, LocalFolder):
            yield folder, model.path / folder
            return
        if not isinstance(model, ObjectFolder):
            raise TypeError(f"The pipeline does not write to {model}")
        with TemporaryDirectory(prefix="files ", dir=scratch()) as name:
            yield folder, Path(name)
            for path in Path(name).iterdir():
                key = f"{model.key}/{folder}/{path.name}"
                with store_errors("Writing", f"{model.url}/{key}"):
                    obstore.put(store_at(model.url), key, path)


def part_of(
    paths: Sequence[Path],
    folder: str,
    columns: Sequence[Column],
    *,
    partition: str | None = None,
    digest: str | None = None,
    constants: Mapping[str, str] | None = None,
) -> Part:
    """Return a part of a version, with the rows of these files; the caller sets the version number.

    A part has the rows of a partition, or all rows of a model without partitions.

    Args:
        folder: the name of the folder with the files.
        columns: all columns of the version.
        digest: see `Part`.
        constants: the columns that are not in the files, each with its value for all rows.
    """
    values = constants or {}
    layout = tuple(
        StoredColumn(each.column, None, values[each.column.name])
        if each.column.name in values
        else each
        for each in plain_layout(columns)
    )
    files, digests = [], hashlib.sha256(repr(layout).encode())
    for path in paths:
        rows = pq.read_metadata(path).num_rows
        name = f"{folder}/{path.name}"
        files.append(DataFile(name=name, rows=rows, size=path.stat().st_size, layout=layout))
        with path.open("rb") as file:
            digests.update(hashlib.file_digest(file, "sha256").digest())
    fingerprint = Fingerprint(
        rows=sum(file.rows for file in files),
        hash_sum=int(digests.hexdigest()[:16], 16),
        algorithm=FILES_DIGEST,
    )
    return Part(
        partition=partition, version=0, fingerprint=fingerprint, files=tuple(files), digest=digest
    )


def check_columns(columns: Sequence[Column], asset_key: str) -> None:
    """Refuse columns that a version cannot have.

    Raises:
        RefusedError: a column is refused. The error names the model, the columns and the remedies.
    """
    reserved = reserved_names(column.name for column in columns)
    problems = [
        f"the column name {each.name!r} is reserved: rename it"
        for each in columns
        if each.name.casefold() in reserved
    ]
    problems += [
        f"column {each.name!r} has no type (void): cast it to the intended type"
        for each in columns
        if each.type == "void"
    ]
    if problems:
        raise RefusedError(
            f'Model "{asset_key}" cannot be stored: {"; ".join(problems)}.', code=Code.MODEL
        )
