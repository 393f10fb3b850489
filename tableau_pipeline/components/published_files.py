"""Data sources that runs of Dagster, or the command `publish`, published from files."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import dagster as dg
from pydantic import ValidationError

from tableau_pipeline.components.journal import journal_place, newest_records
from tableau_pipeline.components.publish_file import FILES_TAG, STEP, PublishFileConfig
from tableau_pipeline.core.checkpoint import Checkpoint
from tableau_pipeline.core.declaration import Declaration, Table
from tableau_pipeline.core.journal import ClaimRelease, History, StoredRecord
from tableau_pipeline.core.policies import Diff, ReplaceAll
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.ingest.publication import KEY_PREFIX
from tableau_pipeline.resources import tableau_project_root

# Read this many of the newest runs that publish files.
_MAX_RUNS = 1000


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A data source that was published from files.

    Attributes:
        history: the history in the data source's journal.
        run: the newest run that published the data source, or failed to publish it; None if no run
            tried to publish it.
        by_command: whether the command `publish`, not a run, made the last attempt.
        problem: why the journal's records cannot be read; "" if they can be read.
    """

    declaration: Declaration
    history: History
    run: dg.RunRecord | None = None
    by_command: bool = True
    problem: str = ""


def published_files(instance: dg.DagsterInstance) -> Mapping[str, PublishedFile]:
    """Map keys to the data sources that were published from files.

    The result includes data sources that runs failed to publish. If only the command `publish`
    tried to publish a data source, and never succeeded, the result leaves out this data source,
    because no checkpoint (the record of what was published) has its name. Raises the same errors as
    `newest_records`.
    """
    recorded, problems = records_of_files(instance)
    found: dict[str, PublishedFile] = {}
    for run in instance.get_run_records(dg.RunsFilter(tags=FILES_TAG), limit=_MAX_RUNS):
        # Skip invalid configs, which a user may have entered in the launchpad.
        with suppress(LookupError, TypeError, ValidationError):
            run_config: Any = run.dagster_run.run_config
            config = PublishFileConfig(**run_config["ops"][STEP]["config"])
            declaration = config.declaration()
            if config.sends and declaration.key not in found:
                newest = recorded.get(declaration.key)
                history = newest.history if newest else History()
                later = newest is not None and _is_later(instance, newest, run)
                found[declaration.key] = PublishedFile(
                    declaration, history, run, later, problems.get(declaration.key, "")
                )
    for key in sorted(problems.keys() - found.keys()):
        # Use the key as the name, because the name is in the unreadable records.
        table = Table(key, f"{key}/rows")
        declaration = Declaration(key=key, name=key, project="Default", tables=(table,))
        found[key] = PublishedFile(declaration, History(), problem=problems[key])
    for key in sorted(recorded.keys() - found.keys()):
        history = recorded[key].history
        if history.checkpoint:
            declaration = recorded_declaration(key, history.checkpoint)
            found[key] = PublishedFile(declaration, history)
    return found


def records_of_files(
    instance: dg.DagsterInstance,
) -> tuple[Mapping[str, StoredRecord], Mapping[str, str]]:
    """Read the newest record of each data source that was published from files.

    Return two mappings. The first maps keys of data sources to records. The second maps the keys of
    data sources with unreadable records to errors. A sensor may call this function every minute, so
    a call takes only one listing of all data sources, and one listing and one read for each data
    source. Raises the same errors as `newest_records`.
    """
    keys = journal_place().keys_in(tableau_project_root())
    newest = newest_records(instance, {key for key in keys if key.startswith(KEY_PREFIX)})
    records = {key: record for key, record in newest.items() if isinstance(record, StoredRecord)}
    errors = {key: str(error) for key, error in newest.items() if isinstance(error, RefusedError)}
    return records, errors


def is_of_command(instance: dg.DagsterInstance, newest: StoredRecord) -> bool:
    """Whether the command `publish`, not a run of this instance, wrote the newest record."""
    last = _last(newest)
    return last is not None and not instance.has_run(last[0])


def _is_later(instance: dg.DagsterInstance, newest: StoredRecord, run: dg.RunRecord) -> bool:
    """Whether the command `publish` wrote the newest record after the creation of `run`."""
    last = _last(newest)
    # Compare the times, because a run may fail before it writes a record.
    is_later = last is not None and run.create_timestamp < last[1]
    return is_later and is_of_command(instance, newest)


def _last(newest: StoredRecord) -> tuple[str, datetime] | None:
    """Return the run id of the last refresh, and the time when this refresh began or ended.

    Return None if the newest record is neither the beginning nor the end of a refresh.
    """
    if claim := newest.history.claim:
        return claim.owner.run_id, claim.claimed_at
    if isinstance(newest.record, ClaimRelease):
        return newest.record.run_id, newest.record.closed_at
    # A refresh wrote the newest record, such as a request, after its claim (its right to exclude
    # other refreshes) had ended. The record does not show how the refresh ended. The newest run in
    # Dagster shows more.
    return None


def recorded_declaration(key: str, checkpoint: Checkpoint) -> Declaration:
    """Derive the declaration of a data source from the checkpoint of its last publish from files.

    The result lacks the settings that a checkpoint does not record.
    """
    ((name, table),) = checkpoint.tables.items()
    is_json = any(column.type.startswith("json of ") for column in table.columns)
    return Declaration(
        key=key,
        name=checkpoint.name,
        # Remove the root project of the environment, which a declaration does not name.
        project=checkpoint.project.removeprefix(f"{tableau_project_root()}/"),
        tables=(Table(name, table.model, policy=Diff(table.key) if table.key else ReplaceAll()),),
        nested="json" if is_json else "refuse",
    )
