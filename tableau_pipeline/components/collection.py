"""Removing old snapshots after a refresh, but for those that some data source still needs."""

import time
from datetime import timedelta
from pathlib import Path

import dagster as dg

from tableau_pipeline.components.journal import DagsterJournal, state_in
from tableau_pipeline.components.keys import extract_key
from tableau_pipeline.core.declaration import Declaration
from tableau_pipeline.resources import SnapshotIOManager
from tableau_pipeline.snapshots.collect import folders_of, needed_by


def collect_snapshots(
    context: dg.AssetExecutionContext, declaration: Declaration, snapshots: SnapshotIOManager
) -> None:
    """Remove what is too old of the models of a data source that was just refreshed.

    A failure is a warning: the refresh has succeeded, and the next one tries again.
    """
    models = {table.model for table in declaration.tables}
    try:
        removed = snapshots.collect(models, lambda: named(context, keep_days=snapshots.keep_days))
    except Exception as error:  # noqa: BLE001 - whatever it is
        context.log.warning("Old snapshots were not removed: %s", error)
    else:
        if removed:
            context.log.info("Removed %d old snapshots of %s", len(removed), ", ".join(models))


def named(context: dg.AssetExecutionContext, *, keep_days: float) -> set[Path]:
    """The snapshots that a data source of this instance may hold, of whatever code location.

    Each one's newest materialization is read, all by one query. Intents since a state that is
    younger than `keep_days` are not: when they were recorded, what they name was current, so that
    it is not old enough to be removed.
    """
    keys = set(context.instance.get_asset_keys())
    published = [key for key in keys if extract_key(key.to_user_string()) in keys]
    young = time.time() - timedelta(days=keep_days).total_seconds()
    found: set[Path] = set()
    for record in context.instance.get_asset_records(published):
        newest = record.asset_entry.last_materialization_record
        state = state_in(newest) if newest else None
        if newest and state and newest.timestamp > young:
            found.update(folders_of(state))
        else:
            found |= needed_by(DagsterJournal(context, record.asset_entry.asset_key))
    return found
