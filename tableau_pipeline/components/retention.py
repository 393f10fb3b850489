"""Remove old snapshots after a refresh, except those that a data source still needs."""

import dagster as dg

from tableau_pipeline.components.journal import recorded_keys, records_of
from tableau_pipeline.core.journal import read_history
from tableau_pipeline.resources import SnapshotIOManager


def collect_snapshots(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, snapshots: SnapshotIOManager
) -> None:
    """Remove the expired snapshots of every model in the store, and what was copied from there.

    Of the steps of a run, only the first one looks: what the others publish expires much later.
    An error is only logged as a warning: the refresh has succeeded, and the next run tries again.
    """
    snapshots.copies.release()
    try:
        removed = snapshots.collect(
            context.run.run_id, lambda: referenced_snapshots(context.instance)
        )
    except Exception as error:  # noqa: BLE001 - whatever it is
        context.log.warning("Old snapshots were not removed: %s", error)
    else:
        if removed:
            context.log.info("Removed %d old snapshots and unfinished writes", len(removed))


def referenced_snapshots(instance: dg.DagsterInstance) -> set[tuple[str, int]]:
    """Return the versions that any data source of this instance may hold, by model and number.

    Raises:
        RefusedError: another release wrote a record that this one does not understand, and which
            may name other versions.
    """
    found: set[tuple[str, int]] = set()
    for key in recorded_keys(instance):
        found |= read_history(records_of(instance, key)).versions
    return found
