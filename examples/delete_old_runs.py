"""Delete old runs from Dagster's storage every Sunday.

Copy this file into the folder `defs` of your project, and switch the schedule on in the web UI.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg

KEEP_DAYS = 30
_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def delete_runs(instance: dg.DagsterInstance, *, before: datetime) -> int:
    """Delete the runs that were created before a time, with their events and logs.

    The last run of each asset stays, so that the web UI shows how the asset came about.

    Returns:
        the number of deleted runs.
    """
    events = map(instance.get_latest_materialization_event, instance.get_asset_keys())
    last = {event.run_id for event in events if event}
    records = instance.get_run_records(dg.RunsFilter(statuses=_ENDED, created_before=before))
    old = [record.dagster_run.run_id for record in records if record.dagster_run.run_id not in last]
    for run_id in old:
        instance.delete_run(run_id)
        instance.compute_log_manager.delete_logs(prefix=[run_id])
        # SQLite has a file for each run. Deleting the run's events does not shrink this file.
        for file in Path(instance.root_directory, "history", "runs").glob(f"{run_id}.db*"):
            file.unlink()
    return len(old)


@dg.op
def delete_old_runs(context: dg.OpExecutionContext) -> None:
    """Delete the runs that are more than KEEP_DAYS old."""
    count = delete_runs(context.instance, before=datetime.now(UTC) - timedelta(days=KEEP_DAYS))
    context.log.info("Deleted %s runs", count)


@dg.job
def old_runs() -> None:
    """Keep Dagster's database small."""
    delete_old_runs()


each_sunday = dg.ScheduleDefinition(job=old_runs, cron_schedule="0 12 * * 0")
