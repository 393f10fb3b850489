"""Remove old snapshots after a refresh, except those that a data source still needs."""

import dagster as dg

from tableau_pipeline.components.asset_keys import extract_key
from tableau_pipeline.components.dagster_journal import record_in, records_of
from tableau_pipeline.core.checkpoint import Closing
from tableau_pipeline.refresh.recover.history import read_history
from tableau_pipeline.resources import SnapshotIOManager


def collect_snapshots(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, snapshots: SnapshotIOManager
) -> None:
    """Remove the expired snapshots of every model in the store, and what was copied from there.

    An error is only logged as a warning: the refresh has succeeded, and the next one tries again.
    """
    snapshots.copies.release()
    try:
        removed = snapshots.collect(lambda: referenced_snapshots(context.instance))
    except Exception as error:  # noqa: BLE001 - whatever it is
        context.log.warning("Old snapshots were not removed: %s", error)
    else:
        if removed:
            context.log.info("Removed %d old snapshots and unfinished writes", len(removed))


def referenced_snapshots(instance: dg.DagsterInstance) -> set[tuple[str, int]]:
    """Return the versions that any data source of this instance may hold, by model and number.

    One query covers all code locations, except data sources that are being refreshed.
    """
    keys = set(instance.get_asset_keys())
    # What publish_file publishes has no extract asset; all of it lies under "files".
    published = [
        key for key in keys if extract_key(key.to_user_string()) in keys or key.path[0] == "files"
    ]
    found: set[tuple[str, int]] = set()
    for record in instance.get_asset_records(published):
        newest = record.asset_entry.last_observation_record
        closing = record_in(newest) if newest else None
        # The newest record usually is the last checkpoint, which saves reading the whole history.
        if isinstance(closing, Closing) and closing.checkpoint:
            found.update(closing.checkpoint.versions)
        else:
            found |= read_history(records_of(instance, record.asset_entry.asset_key)).versions
    return found
