"""The journals, which record refreshes in the data folder, and the setups of refreshes."""

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import dagster as dg

from tableau_pipeline.core.declaration import Declaration, in_environment
from tableau_pipeline.core.deployment import JournalPlace
from tableau_pipeline.core.fields import NOT_INHERITED, Inherited
from tableau_pipeline.core.identity import key_below
from tableau_pipeline.core.journal import History, Owner, StoredRecord
from tableau_pipeline.core.journal_store import StoredJournal, owner_here
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.dagster_internals import step_key
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    TableauServerResource,
    shared_place,
    tableau_project_root,
    work_dir,
)
from tableau_pipeline.scripting.environment import journal_place
from tableau_pipeline.scripting.retention import collect_unneeded

_LOG = logging.getLogger(__name__)
# The asset whose events in Dagster's event log were the records of earlier releases.
FORMER_JOURNAL = dg.AssetKey(["tableau_pipeline", "journal"])
FORMER_RECORDS = (
    "Earlier releases kept their records in Dagster's event log, which this release does not "
    "read. Run once with accept: [takeover], which finds the data sources of earlier releases by "
    "their tags"
)
# The number of journals that are read at the same time.
_THREADS = 8


def journal_of(
    instance: dg.DagsterInstance,
    key: str,
    context: dg.AssetExecutionContext | dg.OpExecutionContext | None = None,
    *,
    root: str | None = None,
    place: JournalPlace | None = None,
) -> StoredJournal:
    """Return the journal of a published asset in this environment.

    Args:
        key: the asset key, without the project root of the environment.
        context: the context of the step that uses the journal; None outside a step.
        root: the project root of the environment; by default TABLEAU_PROJECT_ROOT.
    """
    root = tableau_project_root() if root is None else root
    return StoredJournal(
        place or journal_place(),
        key_below(key, root),
        _owner(context) if context else owner_here(""),
        lambda owner: _run_has_ended(instance, owner),
    )


def histories(
    instance: dg.DagsterInstance, keys: Collection[str]
) -> Mapping[str, History | RefusedError]:
    """Map the key of each published asset in this environment to the history in its journal.

    If a record cannot be read, the key maps to the error. Raises the same errors as
    `newest_records`.
    """
    found = newest_records(instance, keys)
    return {
        key: newest.history if isinstance(newest, StoredRecord) else newest or History()
        for key, newest in found.items()
    }


def newest_records(
    instance: dg.DagsterInstance, keys: Collection[str]
) -> Mapping[str, StoredRecord | RefusedError | None]:
    """Map the key of each published asset in this environment to the newest record in its journal.

    If a record cannot be read, for example because another release wrote it, the key maps to the
    error. All other records are still returned.

    Raises:
        RefusedError: it is unclear whether the records belong to this deployment.
    """
    place = journal_place()
    # Read the deployment only once, before the threads read its journals.
    place.deployment()

    def newest(key: str) -> StoredRecord | RefusedError | None:
        try:
            return journal_of(instance, key, place=place).newest_record()
        except RefusedError as error:
            return error

    with ThreadPoolExecutor(_THREADS) as executor:
        return dict(zip(keys, executor.map(newest, keys), strict=True))


def _owner(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> Owner:
    """Return the owner of a claim, the lock of a refresh: an attempt of a step, in this process."""
    is_asset = isinstance(context, dg.AssetExecutionContext)
    op = context.op_execution_context if is_asset else context
    return owner_here(
        context.run.run_id,
        step=step_key(op),
        attempt=context.retry_number,
        label=f"run {context.run.run_id}",
    )


def _run_has_ended(instance: dg.DagsterInstance, owner: Owner) -> bool | None:
    """Whether Dagster recorded the end of an attempt; None if the instance has no such run."""
    run = instance.get_run_by_id(owner.run_id) if owner.run_id else None
    if run is None:
        return None
    if run.is_finished:
        return True
    kind = dg.DagsterEventType
    ends = {kind.STEP_FAILURE, kind.STEP_SUCCESS, kind.STEP_UP_FOR_RETRY}
    # Dagster stores one of these events at the end of each attempt. The first attempt is 0.
    events = instance.all_logs(owner.run_id, of_type=ends)
    return sum(event.step_key == owner.step for event in events) > owner.attempt


def has_former_records(instance: dg.DagsterInstance) -> bool:
    """Whether an earlier release kept its records in the event log of this instance."""
    return bool(instance.fetch_observations(FORMER_JOURNAL, limit=1).records)


def journal_of_step(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, key: str
) -> StoredJournal:
    """Return the journal to which the step of a published asset writes.

    Log a warning before the first refresh of a data source that an earlier release may have
    published.
    """
    journal = journal_of(context.instance, key, context)
    if has_former_records(context.instance) and not journal.history().number:
        context.log.warning(
            "There is no record of %s in %s. %s", journal.key, journal.place.where, FORMER_RECORDS
        )
    return journal


def setup_of(
    declaration: Declaration,
    journal: StoredJournal,
    *,
    snapshots: Snapshots,
    hyper: HyperResource,
    tableau: TableauServerResource,
    inherited: Inherited = NOT_INHERITED,
    rejected: Callable[[], Mapping[str, Sequence[str]]] = dict,
    keep_files: bool = False,
    log: logging.Logger = _LOG,
) -> Setup:
    """Set up a refresh in this environment with the resources of a code location.

    Args:
        inherited: maps model and column to metadata from other tools.
        rejected: returns, for each model, the names of the checks that rejected its newest rows.
        keep_files: whether the files that the refresh builds stay after the end of the run.
    """
    web = os.environ.get("PIPELINE_WEB_URL")
    return Setup(
        declaration=in_environment(declaration, tableau_project_root()),
        snapshots=snapshots,
        journal=journal,
        # Sign in and start hyperd only on demand. A refresh that ends early then does neither.
        server=lambda: tableau.session(
            log,
            counts=declaration.needs_counts,
            people=bool(declaration.owner or declaration.permissions or declaration.entitlements),
        ),
        hyper=lambda: hyper.process,
        folder=work_dir(keep=keep_files),
        backups=shared_place("kept"),
        log=log,
        timeouts=tableau.timeouts,
        takeover=tableau.takeover,
        link=f"{web.rstrip('/')}/assets/{declaration.key}" if web else None,
        inherited=inherited,
        original_digest=declaration.whole_digest(),
        rejected=rejected,
    )


def collect_snapshots(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, snapshots: SnapshotIOManager
) -> None:
    """Remove the snapshots that no data source needs any longer; release local copies of files."""
    snapshots.copies.release()
    collect_unneeded(
        snapshots.store,
        run_id=context.run.run_id,
        log=context.log,
        keep_days=snapshots.keep_days,
    )
