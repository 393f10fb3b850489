"""Removing old snapshots after a refresh, but for those that some data source still needs."""

import dagster as dg

from tableau_pipeline.components.journal import DagsterJournal
from tableau_pipeline.components.keys import extract_key
from tableau_pipeline.resources import SnapshotIOManager
from tableau_pipeline.snapshots.retention import needed_by

# The first part of the keys of data sources that files became.
_FILES = "files"


def collect_snapshots(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, snapshots: SnapshotIOManager
) -> None:
    """Remove what is too old of all models, now that a data source was refreshed.

    A failure is a warning: the refresh has succeeded, and the next one tries again.
    """
    try:
        removed = snapshots.collect(lambda: referenced(context))
    except Exception as error:  # noqa: BLE001 - whatever it is
        context.log.warning("Old snapshots were not removed: %s", error)
    else:
        if removed:
            models = ", ".join(sorted({model for model, _ in removed}))
            context.log.info("Removed %d old snapshots of %s", len(removed), models)


def referenced(
    context: dg.AssetExecutionContext | dg.OpExecutionContext,
) -> set[tuple[str, int]]:
    """The versions that a data source of this instance may hold, of whatever code location."""
    keys = set(context.instance.get_asset_keys())
    found: set[tuple[str, int]] = set()
    for key in keys:
        if key.path[0] == _FILES or extract_key(key.to_user_string()) in keys:
            found |= needed_by(DagsterJournal(context, key).records())
    return found
