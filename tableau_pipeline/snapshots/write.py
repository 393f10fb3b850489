"""Write versions: one Spark job stores the rows with their hashes and counts them."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from tableau_pipeline.core.snapshot import (
    DataFile,
    Fingerprint,
    Origin,
    Part,
    Snapshot,
    Span,
)
from tableau_pipeline.hyper.tables import ROW_HASH, Column, json_text
from tableau_pipeline.snapshots.partitions import (
    PARTITION,
    PartitionError,
    Window,
    partition_folder,
    with_partition,
)
from tableau_pipeline.snapshots.row_hash import json_values, row_hash, stored_fingerprint
from tableau_pipeline.snapshots.storable import check_storable
from tableau_pipeline.snapshots.store import SnapshotStore, spark_path
from tableau_pipeline.snapshots.successor import succeeding


def write_snapshot(
    frame: DataFrame,
    store: SnapshotStore,
    *,
    asset_key: str,
    run_id: str,
    origin: Origin | None = None,
    before_commit: Callable[[], None] = lambda: None,
) -> Snapshot:
    """Store all rows of a model as its next version.

    Args:
        origin: what the rows are computed from, if it is known.
        before_commit: called once the rows are stored; if it raises, nothing is kept.

    Raises:
        UnstorableError: raised before anything is written; names model, column and remedy.
    """
    check_storable(frame.schema, asset_key)
    with nothing_left(store, asset_key) as folder:
        model = store.folder(asset_key)
        counted, _ = _store(_hashed(frame), folder)
        files = _files(folder, model)
        _check_rows(counted, files, folder=folder, asset_key=asset_key)
        # The number is given at the commit, when it is known which ones other writers have taken.
        whole = Part(version=0, fingerprint=_fingerprint(files, model), files=files)
        before_commit()
        return commit(frame, store, [whole], asset_key=asset_key, run_id=run_id, origin=origin)


def write_partitions(
    frame: DataFrame,
    store: SnapshotStore,
    *,
    expression: str,
    partitions: Mapping[str, Window] | Sequence[str],
    asset_key: str,
    run_id: str,
    keeps: Callable[[Part], bool] = lambda part: True,
    origin: Origin | None = None,
    before_commit: Callable[[], None] = lambda: None,
) -> Snapshot:
    """Store the rows of some partitions of a model; its next version keeps the other partitions.

    A partition without rows is stored too, as an empty one.

    Args:
        keeps: whether a partition of the earlier version still belongs to the model.
        origin: what the rows are computed from, if it is known.
        before_commit: called once the rows are stored; if it raises, nothing is kept.

    Raises:
        UnstorableError: raised before anything is written; names model, column and remedy.
        PartitionError: a row belongs to none of the partitions.
    """
    with nothing_left(store, asset_key) as folder:
        written = stored_parts(
            frame, folder, expression=expression, partitions=partitions, asset_key=asset_key,
            model=store.folder(asset_key),
        )  # fmt: skip
        before_commit()
        columns = columns_of(frame)

        def parts(new: Sequence[Part], before: Snapshot | None) -> tuple[Part, ...]:
            return succeeding(before, new, columns=columns, keeps=keeps)

        return commit(
            frame, store, written, asset_key=asset_key, run_id=run_id, origin=origin, parts=parts
        )


def stored_parts(
    frame: DataFrame,
    folder: Path,
    *,
    model: Path,
    expression: str,
    partitions: Mapping[str, Window] | Sequence[str],
    asset_key: str,
) -> list[Part]:
    """Store rows by partitions for a version to be committed; its number must still be set.

    Args:
        folder: a new folder inside that of the model.

    Raises:
        UnstorableError, PartitionError: as `write_partitions`.
    """
    check_storable(frame.schema, asset_key)
    placed = with_partition(_hashed(frame), expression, partitions)
    counted, strays = _store(placed, folder, by_partition=True)
    if strays:
        raise PartitionError(
            f'Model "{asset_key}": {strays:,} row{"s" * (strays > 1)} lie outside the '
            f"partition{'s' * (len(partitions) > 1)} of this run by {expression}, for "
            f"instance {_stray(placed, expression)}. Filter the model by the partition."
        )
    parts = []
    for key in partitions:
        files = _files(partition_folder(folder, key), model)
        span = _span(partitions[key]) if isinstance(partitions, Mapping) else None
        fingerprint = _fingerprint(files, model)
        parts.append(
            Part(partition=key, span=span, version=0, fingerprint=fingerprint, files=files)
        )
    files = [file for part in parts for file in part.files]
    _check_rows(counted, files, folder=folder, asset_key=asset_key)
    return parts


def commit(
    frame: DataFrame,
    store: SnapshotStore,
    written: Sequence[Part],
    *,
    asset_key: str,
    run_id: str,
    origin: Origin | None = None,
    parts: Callable[[Sequence[Part], Snapshot | None], Sequence[Part]] = lambda new, before: new,
) -> Snapshot:
    """Commit the next version of a model.

    Args:
        written: the parts that were just stored; their number and origin are set here.
        parts: all parts of the version, given those and the version before.
    """

    def make(number: int, before: Snapshot | None) -> Snapshot:
        now = {"version": number, "origin": origin}
        new = [part.model_copy(update=now) for part in written]
        return Snapshot(
            folder=store.folder(asset_key),
            asset_key=asset_key,
            number=number,
            created_at=datetime.now(UTC),
            run_id=run_id,
            columns=columns_of(frame),
            comments=_comments(frame),
            parts=tuple(parts(new, before)),
        )

    return store.commit(asset_key, make)


def columns_of(frame: DataFrame) -> tuple[Column, ...]:
    """Return the columns of a model as snapshots name them."""
    return tuple(Column(field.name, field.dataType.simpleString()) for field in frame.schema.fields)


@contextmanager
def nothing_left(store: SnapshotStore, asset_key: str) -> Generator[Path]:
    """Yield a new folder for the files of a write; remove it if the write fails."""
    folder = store.new_folder(asset_key)
    try:
        yield folder
    except BaseException:
        # The run may be interrupted just after the commit; then the files belong to the version.
        name = folder.relative_to(store.folder(asset_key)).as_posix()
        if not any(file.startswith(name) for file in store.files(asset_key)):
            store.discard(folder)
        raise


def _span(window: Window) -> Span:
    return Span(start=window.start, end=window.end, zone=window.zone)


def _hashed(frame: DataFrame) -> DataFrame:
    """Add the columns for internal use: JSON of nested columns, and the hash of each row."""
    texts = {json_text(name): value for name, value in json_values(frame.schema).items()}
    return frame.withColumns({**texts, ROW_HASH: row_hash(frame.schema)})


def _comments(frame: DataFrame) -> dict[str, str]:
    comments = {field.name: field.metadata.get("comment") for field in frame.schema.fields}
    return {name: comment for name, comment in comments.items() if comment}


def _store(hashed: DataFrame, folder: Path, *, by_partition: bool = False) -> tuple[int, int]:
    """Run the job; return the number of all rows, and of those without a partition."""
    # Spark only counts: it would need more time for the sum of the hashes than their reader does.
    counts = {"rows": F.count(F.lit(1))}
    if by_partition:
        counts["strays"] = F.count_if(F.isnull(PARTITION))
    totals = Observation("totals")
    observed = hashed.observe(totals, *(count.alias(name) for name, count in counts.items()))
    writer = observed.write.partitionBy(PARTITION) if by_partition else observed.write
    writer.parquet(spark_path(folder))
    found = totals.get
    return found["rows"], found.get("strays", 0)


def _stray(placed: DataFrame, expression: str) -> object:
    (row,) = placed.where(F.col(PARTITION).isNull()).select(F.expr(expression)).take(1)
    return row[0]


def _files(folder: Path, model: Path) -> tuple[DataFile, ...]:
    return tuple(
        DataFile(
            name=path.relative_to(model).as_posix(),
            rows=pq.read_metadata(path).num_rows,
            size=path.stat().st_size,
        )
        for path in sorted(folder.glob("part-*.parquet"))
    )


def _fingerprint(files: Sequence[DataFile], model: Path) -> Fingerprint:
    return stored_fingerprint(model / file.name for file in files)


def _check_rows(counted: int, files: Sequence[DataFile], *, folder: Path, asset_key: str) -> None:
    """Compare two counts of the same rows, Spark's and the files', to detect lost files."""
    stored = sum(file.rows for file in files)
    if stored != counted:
        raise RuntimeError(
            f'Model "{asset_key}": Spark counted {counted:,} rows, but the '
            f"files in {folder} hold {stored:,}. Does every executor see that path?"
        )
