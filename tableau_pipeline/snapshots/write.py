"""Write versions: one Spark job stores the rows with their hashes and counts them."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tableau_pipeline.core.snapshot import Origin, Part, Snapshot, Span
from tableau_pipeline.errors import DamagedSnapshotError
from tableau_pipeline.hyper.tables import ROW_HASH, Column, json_text
from tableau_pipeline.objects.opening import StoreError
from tableau_pipeline.snapshots.files.write_rows import write_rows
from tableau_pipeline.snapshots.partitions import (
    PARTITION,
    PartitionError,
    Window,
    with_partition,
)
from tableau_pipeline.snapshots.row_hash import json_values, row_hash
from tableau_pipeline.snapshots.storable import check_partition_keys, check_storable
from tableau_pipeline.snapshots.store import SnapshotStore
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
        written = write_rows(_hashed(frame), store.folder(asset_key), folder, asset_key=asset_key)
        # The number is given at the commit, when it is known which ones other writers have taken.
        files = written.files[None]
        whole = Part(version=0, fingerprint=written.fingerprints[None], files=files)
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
            frame,
            store,
            folder,
            expression=expression,
            partitions=partitions,
            asset_key=asset_key,
        )
        before_commit()
        columns = columns_of(frame)

        def parts(new: Sequence[Part], before: Snapshot | None) -> tuple[Part, ...]:
            return succeeding(before, new, columns=columns, keeps=keeps)

        return commit(
            frame, store, written, asset_key=asset_key, run_id=run_id, origin=origin, parts=parts
        )


def stored_parts(
    frame: DataFrame,
    store: SnapshotStore,
    folder: str,
    *,
    expression: str,
    partitions: Mapping[str, Window] | Sequence[str],
    asset_key: str,
) -> list[Part]:
    """Store rows by partitions for a version to be committed; its number must still be set.

    Args:
        folder: a new folder of the model, from `nothing_left`.

    Raises:
        UnstorableError, PartitionError: as `write_partitions`.
    """
    check_storable(frame.schema, asset_key)
    check_partition_keys(partitions, asset_key)
    placed = with_partition(_hashed(frame), expression, partitions)
    written = write_rows(
        placed, store.folder(asset_key), folder, asset_key=asset_key, partitions=[*partitions]
    )
    if strays := written.strays:
        raise PartitionError(
            f'Model "{asset_key}": {strays:,} row{"s" * (strays > 1)} lie outside the '
            f"partition{'s' * (len(partitions) > 1)} of this run by {expression}, for "
            f"instance {_stray(placed, expression)}. Filter the model by the partition."
        )
    return [
        Part(
            partition=key,
            span=_span(partitions[key]) if isinstance(partitions, Mapping) else None,
            version=0,
            fingerprint=written.fingerprints[key],
            files=written.files[key],
        )
        for key in partitions
    ]


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
def nothing_left(store: SnapshotStore, asset_key: str) -> Generator[str]:
    """Yield a new folder for the files of a write; remove it if the write fails."""
    folder = store.new_folder(asset_key)
    try:
        yield folder
    except StoreError:
        # Whether the commit took effect may not be known; if not, retention removes the files.
        raise
    except BaseException:
        # A store that fails now, or a damaged version, must not hide why the write failed.
        with suppress(StoreError, DamagedSnapshotError):
            # The run may be interrupted just after the commit; then the version has the files.
            if not any(file.startswith(folder) for file in store.files(asset_key)):
                store.discard(asset_key, folder)
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


def _stray(placed: DataFrame, expression: str) -> object:
    (row,) = placed.where(F.col(PARTITION).isNull()).select(F.expr(expression)).take(1)
    return row[0]
