"""Choose the version of a model that a step reads, where other runs may write the model, too."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

import dagster as dg

from tableau_pipeline.core.snapshot import Snapshot
from tableau_pipeline.resources.step_notes import step_of
from tableau_pipeline.snapshots.store import SnapshotStore
from tableau_pipeline.snapshots.successor import succeeding

# How far the clocks of the hosts of Dagster may differ.
_SKEW = timedelta(hours=1)


def version_to_read(context: dg.InputContext, store: SnapshotStore) -> Snapshot | None:
    """Return what this run has written of an upstream model; otherwise its newest version.

    So the models of a run fit together, even if another run writes them meanwhile. The runs that
    this one re-executes count as this one. Of a partitioned model, the run reads its own partitions
    and the newest of all others.

    Returns:
        None if the model has no version.
    """
    newest = store.newest(context.asset_key.to_user_string())
    step = step_of(context)
    if newest is None or step is None or newest.run_id == step.run_id:
        return newest
    attempts = [
        each
        for each in _attempts(step.instance, step.run_id)
        # Without a selection, the run is of all assets of its job.
        if context.asset_key in (each.dagster_run.asset_selection or {context.asset_key})
    ]
    own = _newest_of(attempts, store, newest)
    return _with_parts_of(own, newest) if own else newest


def _attempts(instance: dg.DagsterInstance, run_id: str) -> Iterator[dg.RunRecord]:
    """Yield the record of a run, that of the run that it re-executes, and so on."""
    attempt: str | None = run_id
    while attempt and (record := instance.get_run_record_by_id(attempt)):
        yield record
        attempt = record.dagster_run.parent_run_id


def _newest_of(
    attempts: Sequence[dg.RunRecord], store: SnapshotStore, newest: Snapshot
) -> Snapshot | None:
    """Return the newest version that one of these runs has written."""
    if not attempts:
        return None
    runs = {each.dagster_run.run_id for each in attempts}
    # Earlier versions cannot be of these runs, and need not be read.
    since = min(each.create_timestamp for each in attempts) - _SKEW
    for number in reversed(store.numbers(newest.asset_key)):
        found = store.version(newest.asset_key, number)
        if found and found.run_id in runs:
            return found
        if found and found.created_at < since:
            break
    return None


def _with_parts_of(own: Snapshot, newest: Snapshot) -> Snapshot:
    """Return the newest version with the parts that an earlier one has written, as written."""
    written = [part for part in own.parts if part.version == own.number]
    current = {(part.partition, part.version) for part in newest.parts}
    if current.issuperset((part.partition, part.version) for part in written):
        return newest
    parts = succeeding(newest, written, columns=own.columns, keeps=lambda part: True)
    return own.model_copy(update={"parts": parts})
