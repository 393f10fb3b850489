"""The data sources that were published from files: by runs of Dagster, and by `publish`."""

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

# How many of the newest runs that publish files are read.
_MAX_RUNS = 1000


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A data source that was published from files.

    Attributes:
        history: what the records of its journal amount to.
        run: the newest run that published it or failed to; None if only the command `publish` did.
        by_command: whether that command was the last to publish it or to fail.
        problem: why its records cannot be read; "" if they can.
    """

    declaration: Declaration
    history: History
    run: dg.RunRecord | None = None
    by_command: bool = True
    problem: str = ""


def published_files(instance: dg.DagsterInstance) -> Mapping[str, PublishedFile]:
    """Return the data sources that were published from files, by key.

    They include those that runs failed to publish. They exclude those that only the command
    `publish` tried to publish, and never did: these have no readers yet, and no recorded name.

    Errors are as in `newest_records`.
    """
    recorded, problems = records_of_files(instance)
    found: dict[str, PublishedFile] = {}
    for run in instance.get_run_records(dg.RunsFilter(tags=FILES_TAG), limit=_MAX_RUNS):
        # A user may have entered an invalid config in the launchpad.
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
        # Its name is in its records.
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
    """Return the newest record of each data source of files, by key, and why others have none.

    Errors are as in `newest_records`. A sensor may call it every minute: it takes one listing, and
    for each data source another listing and a read.
    """
    keys = journal_place().keys_in(tableau_project_root())
    newest = newest_records(instance, {key for key in keys if key.startswith(KEY_PREFIX)})
    records = {key: record for key, record in newest.items() if isinstance(record, StoredRecord)}
    errors = {key: str(error) for key, error in newest.items() if isinstance(error, RefusedError)}
    return records, errors


def is_of_command(instance: dg.DagsterInstance, newest: StoredRecord) -> bool:
    """Whether the command `publish` wrote the newest record, not a run of this instance."""
    last = _last(newest)
    return last is not None and not instance.has_run(last[0])


def _is_later(instance: dg.DagsterInstance, newest: StoredRecord, run: dg.RunRecord) -> bool:
    """Whether the command `publish` wrote the newest record, after a run had been created."""
    last = _last(newest)
    # A run may fail before it leaves a record.
    is_later = last is not None and run.create_timestamp < last[1]
    return is_later and is_of_command(instance, newest)


def _last(newest: StoredRecord) -> tuple[str, datetime] | None:
    """Return the run id of the last refresh, and when that refresh began or ended."""
    if claim := newest.history.claim:
        return claim.owner.run_id, claim.claimed_at
    if isinstance(newest.record, ClaimRelease):
        return newest.record.run_id, newest.record.closed_at
    # The record is a request of an overtaken refresh, whose run shows more.
    return None


def recorded_declaration(key: str, checkpoint: Checkpoint) -> Declaration:
    """Return the declaration of a data source of files, as far as its records show it."""
    ((name, table),) = checkpoint.tables.items()
    is_json = any(column.type.startswith("json of ") for column in table.columns)
    return Declaration(
        key=key,
        name=checkpoint.name,
        # A declaration has no root.
        project=checkpoint.project.removeprefix(f"{tableau_project_root()}/"),
        tables=(Table(name, table.model, policy=Diff(table.key) if table.key else ReplaceAll()),),
        nested="json" if is_json else "refuse",
    )
