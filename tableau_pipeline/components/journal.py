"""Dagster's event log as the journal of a refresh.

Records are runless observations: Dagster stores them at once, so that they outlive a crash of the
step, and keeps them when a user deletes the run. They belong to an asset of their own, not to the
published asset. So the events of the published asset are only those that users look for, and no
action of a user or a sensor on that asset affects the journal. Each data source has its own
partitions of that asset, because Dagster's event log has an index of partitions.
"""

import logging
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from uuid import uuid4

import dagster as dg
from filelock import FileLock

from tableau_pipeline.core.declaration import Declaration, in_environment
from tableau_pipeline.core.fields import NOT_INHERITED, Inherited
from tableau_pipeline.core.identity import file_name, key_below
from tableau_pipeline.core.journal import (
    CLAIMS,
    Claim,
    ClaimRelease,
    Intent,
    Owner,
    Record,
    Recovered,
    holding_lock,
    is_claim,
    is_complete,
    read_history,
    read_record,
)
from tableau_pipeline.core.snapshot import Snapshots
from tableau_pipeline.dagster_internals import (
    instance_id,
    newest_by_partition,
    step_key,
)
from tableau_pipeline.errors import RefusedError
from tableau_pipeline.metadata.written import WrittenValues
from tableau_pipeline.outcome import Code
from tableau_pipeline.refresh.setup import Setup
from tableau_pipeline.resources import (
    HyperResource,
    SnapshotIOManager,
    TableauServerResource,
    data_dir,
    shared_place,
    tableau_project_root,
    work_dir,
)
from tableau_pipeline.snapshots.retention import collect, is_first

_LOG = logging.getLogger(__name__)
# The asset of the records of all data sources; no code location defines it.
JOURNAL = dg.AssetKey(["tableau_pipeline", "journal"])
_RECORD = "tableau_pipeline/record"
# The id of an instance that has not published yet.
_NO_ID = "nothing was published yet"
# Each data source has two partitions: one for claims and their releases, one for other records.
_CLAIMS, _REQUESTS = "claims:", "requests:"
_REPAIR = (
    "Restore a backup of Dagster's database. Or wipe that asset in Dagster: then each data source "
    "is found by its tags, and published again"
)

# Maps the key of a data source to two records: the newest about claims, the newest about requests.
Newest = Mapping[str, tuple[Record | None, Record | None]]


class DagsterJournal:
    """Implements `core.journal.Journal` for one published asset in this environment.

    Attributes:
        key: the key of the asset in its environment, see `core.identity.key_below`.
        log: the log of the step; without a step, the log of this module.

    Args:
        context: the context of the step that records; None for a journal that only reads.
        root: the project root of the environment; by default TABLEAU_PROJECT_ROOT.
        newest: the result of `newest_records`; None to read only the records of this data source.
    """

    def __init__(
        self,
        dagster: dg.DagsterInstance,
        key: str,
        context: dg.AssetExecutionContext | dg.OpExecutionContext | None = None,
        *,
        root: str | None = None,
        newest: Newest | None = None,
    ) -> None:
        self._newest = newest
        self._dagster = dagster
        self._root = tableau_project_root() if root is None else root
        self.key = key_below(key, self._root)
        self._context = context
        self.log = context.log if context else _LOG

    @cached_property
    def instance(self) -> str:
        """The id of the Dagster instance in this environment.

        It combines the id of the instance's run storage (in Dagster+, the name of the deployment)
        with the environment. Ephemeral instances with the same data folder share one id.
        """
        return key_below(self._id, self._root)

    @property
    def _id(self) -> str:
        if self._is_temporary:
            file = data_dir() / "instance"
            # A journal without a step creates no file.
            return _stored_name(file) if self._context or file.exists() else _NO_ID
        stored_id = instance_id(self._dagster, reads_only=self._context is None)
        if stored_id is None:
            return os.environ.get("DAGSTER_CLOUD_DEPLOYMENT_NAME", "dagster")
        return stored_id or _NO_ID

    @cached_property
    def owner(self) -> Owner:
        """This attempt of the step, and its process."""
        context = self._context
        if context is None:
            raise ValueError("who only reads a journal owns none of its records")
        is_asset = isinstance(context, dg.AssetExecutionContext)
        op = context.op_execution_context if is_asset else context
        return Owner(
            run_id=context.run.run_id,
            step=step_key(op),
            attempt=context.retry_number,
            boot=_boot(),
            namespace=_namespace(),
            pid=os.getpid(),
        )

    def records(self) -> Sequence[Record]:
        """Return the newest records; see `records_of`."""
        if self._newest is not None:
            newest = self._newest.get(self.key, ())
            # The record of a completed refresh supersedes all records before it.
            if not newest or (isinstance(newest[1], ClaimRelease) and newest[1].checkpoint):
                return [record for record in newest if record]
        return records_of(self._dagster, self.key)

    def append(self, record: Record) -> None:
        """Store a runless observation."""
        self._dagster.report_runless_asset_event(journal_event(self.key, record))

    def has_ended(self, owner: Owner) -> bool:
        """Whether an attempt has ended.

        It has if its process on this host is gone, or if Dagster recorded its end or lost its run.
        """
        if (owner.boot, owner.namespace) == (_boot(), _namespace()):
            try:
                os.kill(owner.pid, 0)
            except ProcessLookupError:
                return True
            except PermissionError:
                # The process exists, but belongs to another user.
                pass
        run = self._dagster.get_run_by_id(owner.run_id)
        # Count a deleted run as ended, or its claim would block all others forever.
        if run is None or run.is_finished:
            return True
        kind = dg.DagsterEventType
        ends = {kind.STEP_FAILURE, kind.STEP_SUCCESS, kind.STEP_UP_FOR_RETRY}
        # Dagster stores one such event for each attempt.
        events = self._dagster.all_logs(owner.run_id, of_type=ends)
        return sum(event.step_key == owner.step for event in events) > owner.attempt

    def lock(self, timeout: float) -> AbstractContextManager[None]:
        """Lock this asset on this host if the instance is temporary; otherwise lock nothing.

        Temporary instances need a lock, because they do not see each other's records.
        """
        if not self._is_temporary:
            return nullcontext()
        lock = FileLock(data_dir() / "locks" / f"{file_name(self.key)}.lock")
        return holding_lock(lock, by=f"Another refresh of {self.key}", timeout=timeout)

    @property
    def _is_temporary(self) -> bool:
        return self._dagster.is_ephemeral or not os.environ.get("DAGSTER_HOME")


def journal_event(key: str, record: Record) -> dg.AssetObservation:
    """Return the event that stores a record of a published asset."""
    return dg.AssetObservation(
        JOURNAL,
        description=_description(record),
        partition=f"{_CLAIMS if is_claim(record) else _REQUESTS}{key}",
        metadata={_RECORD: dg.MetadataValue.json(record.model_dump(mode="json"))},
    )


def records_of(instance: dg.DagsterInstance, key: str) -> list[Record]:
    """Return the newest records of a published asset, in two reads however long its history is.

    Args:
        key: the key of the asset in its environment, see `core.identity.key_below`.

    Raises:
        RefusedError: another release wrote a record that this release does not understand.
    """
    # Read the claims first: a refresh records its requests before it releases its claim.
    claims, _ = _page(instance, f"{_CLAIMS}{key}", None)
    requests, cursor = _page(instance, f"{_REQUESTS}{key}", None)
    # Only a refresh with many requests, such as a split update, takes more than one page.
    while cursor and not is_complete(requests):
        page, cursor = _page(instance, f"{_REQUESTS}{key}", cursor)
        requests += page
    return [*claims, *requests]


def newest_records(instance: dg.DagsterInstance) -> Newest:
    """Return the newest record about claims and about requests of every data source.

    Two reads suffice for any number of data sources. The result covers all environments.

    Raises:
        RefusedError: another release wrote a record that this release does not understand.
    """
    latest = newest_by_partition(instance, JOURNAL, dg.DagsterEventType.ASSET_OBSERVATION)
    records: dict[str, Record] = {}
    if latest:
        filter_ = dg.AssetRecordsFilter(asset_key=JOURNAL, storage_ids=[*latest.values()])
        for event in instance.fetch_observations(filter_, limit=len(latest)).records:
            records[str(event.partition_key)] = _record_in(event)
    keys = {partition.partition(":")[2] for partition in records}
    return {key: (records.get(f"{_CLAIMS}{key}"), records.get(f"{_REQUESTS}{key}")) for key in keys}


def _page(
    instance: dg.DagsterInstance, partition: str, cursor: str | None
) -> tuple[list[Record], str | None]:
    """Return a page of records, newest first, and the cursor of the next page; None at the end."""
    filter_ = dg.AssetRecordsFilter(asset_key=JOURNAL, asset_partitions=[partition])
    page = instance.fetch_observations(filter_, limit=CLAIMS, cursor=cursor)
    return [*map(_record_in, page.records)], page.cursor if page.has_more else None


def _record_in(event: dg.EventLogRecord) -> Record:
    observation = event.asset_observation
    value = observation.metadata.get(_RECORD) if observation else None
    try:
        stored = value.data if isinstance(value, dg.JsonMetadataValue) else None
        return read_record(stored, repair=_REPAIR)
    except RefusedError as error:
        raise RefusedError(
            f"The journal of this Dagster instance (asset {JOURNAL.to_user_string()}, partition "
            f"{event.partition_key}) has a record that cannot be read: {error}",
            code=Code.RECORD,
        ) from error


def _description(record: Record) -> str:
    match record:
        case Claim():
            what = "begins"
        case Intent():
            what = f"{record.action}: {record.outcome or record.job_id or 'not yet sent'}"
        case ClaimRelease(withdrawn=True):
            what = "withdraws: another one was first"
        case ClaimRelease(checkpoint=None):
            what = "ends without a result"
        case ClaimRelease():
            what = "ends: the data source equals its models"
        case Recovered():
            what = "found out what earlier ones have left"
    return f"refresh {record.refresh} {what}"


def _stored_name(path: Path) -> str:
    """Return the name stored in a file; create a new one if the file is absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two simultaneous first runs have to agree on one name.
    with FileLock(f"{path}.lock"):
        name = path.read_text(encoding="ascii") if path.exists() else ""
        if not name:
            name = str(uuid4())
            path.write_text(name, encoding="ascii")
        return name


def _boot() -> str:
    """Return an id of this boot of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def _namespace() -> str:
    """Return the id of the process namespace: only within it can process ids be compared."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        # Without namespaces, all processes of the host have comparable ids.
        return ""


def setup_of(
    declaration: Declaration,
    journal: DagsterJournal,
    *,
    snapshots: Snapshots,
    hyper: HyperResource,
    tableau: TableauServerResource,
    inherited: Inherited = NOT_INHERITED,
    rejected: Callable[[], Mapping[str, Sequence[str]]] = dict,
    keep_files: bool = False,
) -> Setup:
    """Return the setup of a refresh in this environment, with the resources of a code location.

    Args:
        inherited: metadata of columns from other tools; its keys are model and column.
        rejected: returns, for each model, the names of the checks that rejected its newest rows.
        keep_files: whether the files that the refresh builds outlive the run.
    """
    web, log = os.environ.get("PIPELINE_WEB_URL"), journal.log
    return Setup(
        declaration=in_environment(declaration, tableau_project_root()),
        snapshots=snapshots,
        journal=journal,
        # Opened only when needed: a refresh that ends early costs no sign-in and no process.
        server=lambda: tableau.session(
            log,
            counts=declaration.needs_counts,
            people=bool(declaration.owner or declaration.permissions),
        ),
        hyper=lambda: hyper.process,
        folder=work_dir(keep=keep_files),
        backups=shared_place("kept"),
        log=log,
        timeouts=tableau.timeouts,
        takeover=tableau.takeover,
        link=f"{web.rstrip('/')}/assets/{declaration.key}" if web else None,
        inherited=inherited,
        rejected=rejected,
    )


def collect_snapshots(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, snapshots: SnapshotIOManager
) -> None:
    """Remove expired snapshots and expired files of metadata values; release local copies of files.

    The snapshots of every model in the store are considered, but whatever a data source of this
    instance may still need stays. Only the first step of a run removes anything, because the
    versions that later steps publish expire much later. An error is only logged as a warning:
    the refresh has succeeded, and the next run tries again.
    """
    instance, store = context.instance, snapshots.store
    snapshots.copies.release()
    before = datetime.now(UTC) - timedelta(days=snapshots.keep_days)
    try:
        if not is_first(store, context.run.run_id):
            return
        # All data sources of all environments for which a request was recorded.
        sent = [key for key, (_, request) in newest_records(instance).items() if request]
        histories = [read_history(records_of(instance, key)) for key in sent]
        versions = {version for history in histories for version in history.versions}
        removed = collect(store, keep_days=snapshots.keep_days, referenced=versions)
        names = {name for history in histories for name in history.written}
        removed_files = WrittenValues(shared_place("metadata")).collect(names, before)
    except Exception as error:  # noqa: BLE001 - no error may fail the refresh
        context.log.warning("Old snapshots were not removed: %s", error)
    else:
        if removed or removed_files:
            context.log.info(
                "Removed %d old snapshots and unfinished writes, %d old files of metadata",
                len(removed),
                removed_files,
            )
