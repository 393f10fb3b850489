"""The IO manager that stores and loads snapshots.

Assets return DataFrames; they load DataFrames or Snapshots.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_origin

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field
from pyspark.sql import DataFrame

from tableau_pipeline.core.snapshot import Part, Snapshot, Span
from tableau_pipeline.dagster_internals import is_hourly, is_left_out
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.file_store import store_rows
from tableau_pipeline.ingest.spark_reader import rows_of
from tableau_pipeline.objects.local_files import LocalCopies
from tableau_pipeline.objects.storage import ObjectStorage
from tableau_pipeline.objects.stores import is_url
from tableau_pipeline.outcome import Code
from tableau_pipeline.resources.services import as_failure
from tableau_pipeline.scripting.environment import CACHE_GB, local_copies
from tableau_pipeline.snapshots.load import read_frame
from tableau_pipeline.snapshots.version_store import SnapshotStore
from tableau_pipeline.snapshots.write import write_partitions, write_snapshot

# List the partitions up to this time. By default, Dagster lists only partitions that have ended by
# the clock of this worker. If the clock were slow, the list would lack a partition that another
# worker has just stored.
_LATER = datetime(3000, 1, 1, tzinfo=UTC)
_HOUR = 3600


def partition_filter(definition: dg.PartitionsDefinition | None) -> Callable[[Part], bool]:
    """Return a function that tells whether a stored part belongs to a partitions definition.

    The returned function compares the key and the time window, because the key alone is not enough:
    "2025-01-05" may be a day or a week.

    Args:
        definition: a definition by static keys or time windows. For any other definition, and for
            None, the returned function returns True for all parts.
    """
    match definition:
        case dg.StaticPartitionsDefinition():
            keys = frozenset(definition.get_partition_keys())
            return lambda part: part.span is None and part.partition in keys
        case dg.TimeWindowPartitionsDefinition():
            return _has_window(definition)
    return lambda part: True


def unsupported(definition: dg.PartitionsDefinition | None) -> str:
    """Return what to do if snapshots do not support these partitions; "" if they are supported."""
    if definition is None or isinstance(
        definition, dg.StaticPartitionsDefinition | dg.TimeWindowPartitionsDefinition
    ):
        return ""
    return (
        f"its partitions are those of a {type(definition).__name__}, which snapshots do not "
        "support: partition it by time windows or by a fixed list of keys, and keep all else in "
        "columns; or do not partition it"
    )


def _has_window(definition: dg.TimeWindowPartitionsDefinition) -> Callable[[Part], bool]:
    """Return a function that tells whether a part is one of these partitions, ended or not."""
    with dg.partition_loading_context(effective_dt=_LATER):
        first = definition.get_first_partition_window()
        last = definition.get_last_partition_window()

    def has(part: Part) -> bool:
        if not (first and last and part.span and part.partition):
            return False
        # Compare times as numbers: a time in a repeated hour (fold) never equals a time in another
        # zone.
        start, end = part.span.start.timestamp(), part.span.end.timestamp()
        if not first.start.timestamp() <= start <= last.start.timestamp():
            return False
        try:
            # For hourly windows, avoid Dagster's own computation: it takes seconds for three years.
            if is_hourly(definition) and end - start == _HOUR:
                key_start = definition.start_time_for_partition_key(part.partition)
                if key_start.timestamp() == start:
                    return True
            window = definition.time_window_for_partition_key(part.partition)
        except ValueError:  # the key is no time, or has another format
            return False
        is_same = (window.start.timestamp(), window.end.timestamp()) == (start, end)
        return is_same and not is_left_out(definition, window.start)

    return has


PARTITION_EXPR = "partition_expr"


class SnapshotIOManager(dg.ConfigurableIOManager):
    """Stores the rows of a model as its next version; loads the newest version of a model.

    The annotation of a parameter decides how it is loaded. Spark reads a `DataFrame`. A `Snapshot`,
    or a `dict[str, Snapshot]` by partition, needs no JVM.
    """

    root: str = Field(
        description="Folder of all snapshots, or URL of an object store (s3://, gs://, abfss://). "
        "Spark and every run must have access to it."
    )
    spark: dg.ResourceDependency[LazyPySparkResource]
    keep_days: float = Field(
        default=14,
        gt=0,
        description="Days until a replaced snapshot is removed, unless a refresh may still "
        "compare rows with it. Must be longer than any run takes.",
    )

    cache_gb: float = Field(
        default=CACHE_GB,
        ge=0,
        allow_inf_nan=False,
        description="How many GB of files from an object store to keep as local copies, which "
        "hyperd reads.",
    )

    @property
    def store(self) -> SnapshotStore:
        """The store of all versions of all models.

        Raises:
            RefusedError: `root` is a URL, but not the URL of an object store.
        """
        is_remote = is_url(self.root, setting="PIPELINE_DATA_DIR")
        return SnapshotStore(
            ObjectStorage(self.root, self.copies) if is_remote else Path(self.root)
        )

    @property
    def copies(self) -> LocalCopies:
        """The local copies of the files that hyperd reads from an object store."""
        return local_copies(int(self.cache_gb * 1e9))

    def snapshot(
        self, asset_key: str, definition: dg.PartitionsDefinition | None = None
    ) -> Snapshot | None:
        """Return the newest version of a model; None if there is none.

        Args:
            asset_key: the key of the model; "a/b" is a key of two parts.
            definition: the current partitions definition of the model. The result leaves out stored
                partitions that do not belong to it. None to include all stored partitions.
        """
        snapshot = self.store.newest(asset_key)
        if snapshot is None or definition is None:
            return snapshot
        parts = tuple(filter(partition_filter(definition), snapshot.parts))
        return snapshot.model_copy(update={"parts": parts}) if parts else None

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Store the rows of a model, and make their fingerprint the data version of the asset."""
        asset_key = context.asset_key.to_user_string()
        if not isinstance(obj, DataFrame):
            # Dagster does not call this method if an asset is annotated `-> None`, or if it returns
            # a MaterializeResult.
            raise TypeError(
                f'Model "{asset_key}" returned {"nothing" if obj is None else type(obj).__name__}: '
                "return a Spark DataFrame, or give the asset another io_manager_key. An asset that "
                'stores its result elsewhere says so by "-> None", or by dg.MaterializeResult.'
            )
        started = time.monotonic()
        with as_failure(context.log):
            snapshot = self._stored(context, obj)
        _report(context, snapshot)
        context.add_output_metadata({"seconds": round(time.monotonic() - started, 3)})

    def load_input(self, context: dg.InputContext) -> DataFrame | Snapshot | dict[str, Snapshot]:
        """Load the newest version of an upstream model, as the type that the parameter declares."""
        with as_failure(context.log):
            return self._loaded(context)

    def _stored(self, context: dg.OutputContext, rows: DataFrame) -> Snapshot:
        """Store rows as a new version; return the version with only the partitions of this step."""
        asset_key, run_id = context.asset_key.to_user_string(), context.run_id
        if not context.has_asset_partitions:
            if files := rows_of(rows):
                # The model returns, unchanged, rows that Arrow has read: store them without Spark.
                return store_rows(files, self.store, asset_key=asset_key, run_id=run_id)
            return write_snapshot(rows, self.store, asset_key=asset_key, run_id=run_id)
        if problem := unsupported(context.asset_partitions_def):
            raise RefusedError(f'Model "{asset_key}": {problem}', code=Code.MODEL)
        expression = (context.definition_metadata or {}).get(PARTITION_EXPR)
        if not isinstance(expression, str):
            raise dg.Failure(
                f'Model "{asset_key}" is partitioned: name the column with the partition, as '
                f'metadata={{"{PARTITION_EXPR}": "<column>"}} of the asset.'
            )
        if expression in rows.columns:
            # Quote the column name for SQL: a name such as `order date` needs quotes.
            expression = f"`{expression.replace('`', '``')}`"
        partitions = _partitions(context)
        return write_partitions(
            rows,
            self.store,
            expression=expression,
            partitions=partitions,
            keeps=partition_filter(context.asset_partitions_def),
            asset_key=asset_key,
            run_id=run_id,
        ).only(partitions)

    def _loaded(self, context: dg.InputContext) -> DataFrame | Snapshot | dict[str, Snapshot]:
        asset_key = context.asset_key.to_user_string()
        partitioned = context.has_asset_partitions
        snapshot = self.snapshot(asset_key, context.asset_partitions_def if partitioned else None)
        if snapshot and partitioned:
            snapshot = snapshot.only(set(context.asset_partition_keys))
        if snapshot is None or not snapshot.parts:
            raise RefusedError(
                f'Model "{asset_key}" has no snapshot in {self.root}: materialize it first.',
                code=Code.NO_SNAPSHOT,
            )
        annotation = context.dagster_type.typing_type
        if annotation is Snapshot:
            return snapshot
        if get_origin(annotation) is dict:
            return snapshot.by_partition()
        return read_frame(self.spark.spark_session, snapshot)


def _partitions(context: dg.OutputContext) -> Mapping[str, Span] | Sequence[str]:
    """Return the partition keys of this step; for time windows, each key with its window."""
    definition, keys = context.asset_partitions_def, context.asset_partition_keys
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        windows = {key: definition.time_window_for_partition_key(key) for key in keys}
        return {
            key: Span(start=window.start, end=window.end, zone=str(window.start.tzinfo))
            for key, window in windows.items()
        }
    return list(keys)


def _report(context: dg.OutputContext, written: Snapshot) -> None:
    """Report to Dagster what this step wrote: a whole version, or some of its partitions."""
    step = dg.AssetExecutionContext.get()
    # Set only one data version, because Dagster stores the same for all partitions of a step.
    step.set_data_version(context.asset_key, dg.DataVersion(written.data_version))
    context.add_output_metadata(
        {
            "dagster/column_schema": dg.TableSchema(
                columns=[
                    dg.TableColumn(column.name, column.type, written.comments.get(column.name))
                    for column in written.columns
                ]
            )
        }
    )
    for partition, snapshot in written.by_partition().items():
        (part,) = snapshot.parts
        file_name = next((file.name for file in part.files), "")
        metadata = {
            "dagster/uri": snapshot.folder.uri(file_name.rpartition("/")[0]),
            "fingerprint": snapshot.data_version,
            "bytes": snapshot.size,
            "version": snapshot.number,
        }
        if part.partition is None:
            context.add_output_metadata({"dagster/row_count": part.fingerprint.rows, **metadata})
        else:
            step.add_asset_metadata(
                {"dagster/partition_row_count": part.fingerprint.rows, **metadata},
                asset_key=context.asset_key,
                partition_key=partition,
            )
