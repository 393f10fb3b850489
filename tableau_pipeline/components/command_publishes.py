"""A sensor that shows in Dagster what the command `publish` has published.

The command does not report to Dagster, because it may run where Dagster is not installed, and
importing Dagster takes seconds. The sensor reads the command's records in the data folder.
"""

from collections.abc import Iterator, Mapping

import dagster as dg

from tableau_pipeline.components.instigators import default_status
from tableau_pipeline.components.journal import journal_of
from tableau_pipeline.components.published_files import (
    is_of_command,
    recorded_declaration,
    records_of_files,
)
from tableau_pipeline.components.reporting import published_by_command
from tableau_pipeline.components.status import certain_checkpoint, past_refresh
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.journal import StoredRecord
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.outcome import Code


def publishes_sensor() -> dg.SensorDefinition:
    """Return the sensor, which starts no run."""

    @dg.sensor(
        name="published_files",
        minimum_interval_seconds=60,
        default_status=default_status(dg.DefaultSensorStatus),
        description="Shows in Dagster what the command tableau-pipeline publish has published.",
    )
    def show(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        recorded, problems = records_of_files(context.instance)
        names, unread = [], [*problems.values()]
        for key, checkpoint in _unreported(context.instance, recorded):
            declaration = recorded_declaration(key, checkpoint)
            try:
                decision = _decision(context.instance, key, checkpoint)
            except RefusedError as error:
                unread.append(str(error))
                continue
            event = published_by_command(declaration, checkpoint, decision)
            context.instance.report_runless_asset_event(event)
            names.append(declaration.name)
        shown = f"Shown: {', '.join(names)}" if names else "Nothing new to show"
        # Fail only now, after the readable publishes are shown. A failed tick makes users notice
        # the unreadable records.
        if unread:
            raise RefusedError("\n".join([*unread, shown]), code=Code.RECORD)
        return dg.SkipReason(shown)

    return show


def _unreported(
    instance: dg.DagsterInstance, recorded: Mapping[str, StoredRecord]
) -> Iterator[tuple[str, Checkpoint]]:
    """Yield the key and the last publish of each data source whose last publish is new to Dagster.

    A refused publish does not count as the last publish.
    """
    assets = {key: dg.AssetKey.from_user_string(key) for key in recorded}
    records = (record.asset_entry for record in instance.get_asset_records([*assets.values()]))
    entries = {entry.asset_key: entry for entry in records}
    for key, newest in recorded.items():
        checkpoint, entry = certain_checkpoint(newest.history), entries.get(assets[key])
        last = past_refresh(entry.last_materialization) if entry else None
        taken_at = checkpoint.taken_at if checkpoint else None
        is_new = taken_at and (last is None or last.rows_at < taken_at)
        # Call `is_of_command` only if all other conditions hold, because each call is a query.
        if checkpoint and is_new and is_of_command(instance, newest):
            yield key, checkpoint


def _decision(instance: dg.DagsterInstance, key: str, checkpoint: Checkpoint) -> str:
    """Derive from a refresh's records what the refresh did: "no change", "update" or "publish"."""
    checkpoints = journal_of(instance, key).checkpoints()
    before = next((each for each in checkpoints if each.refresh < checkpoint.refresh), None)
    if before and before.changed_at == checkpoint.changed_at:
        return "no change"
    return "update" if checkpoint.updates else "publish"
