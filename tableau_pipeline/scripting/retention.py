"""Remove files that no data source of a data folder needs any longer."""

import logging
from datetime import UTC, datetime, timedelta

from tableau_pipeline.core.journal_store import all_histories
from tableau_pipeline.metadata.written import WrittenValues
from tableau_pipeline.scripting.environment import journal_place, shared_place
from tableau_pipeline.snapshots.retention import collect, is_first
from tableau_pipeline.snapshots.version_store import SnapshotStore

# How many days a replaced version is kept. A version that a refresh may still need is kept longer.
KEEP_DAYS = 14.0


def collect_unneeded(
    store: SnapshotStore, *, run_id: str, log: logging.Logger, keep_days: float = KEEP_DAYS
) -> None:
    """Remove expired snapshots and expired files of metadata values.

    All models in the store are considered. A snapshot is kept if any data source of any deployment
    in the store may still need it. Only the first call for a run removes anything, because the
    versions that later steps of the run replace expire only after `keep_days`. An error is only
    logged as a warning: the refresh has succeeded, and the next run tries again.
    """
    before = datetime.now(UTC) - timedelta(days=keep_days)
    try:
        if not is_first(store, run_id):
            return
        known = all_histories(journal_place())
        versions = {version for history in known for version in history.versions}
        removed = collect(store, keep_days=keep_days, referenced=versions)
        names = {name for history in known for name in history.written}
        removed_files = WrittenValues(shared_place("metadata")).collect(names, before)
    except Exception as error:  # noqa: BLE001 - no error may fail the refresh
        log.warning("Old snapshots were not removed: %s", error)
    else:
        if removed or removed_files:
            log.info(
                "Removed %d old snapshots and unfinished writes, %d old files of metadata",
                len(removed),
                removed_files,
            )
