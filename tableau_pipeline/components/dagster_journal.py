"""Dagster's event log as the journal of a refresh.

Records are runless observations of the published asset: Dagster stores them at once, so that they
outlive a crash of the step, and keeps them when somebody deletes the run.
"""

import json
import os
import platform
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from uuid import uuid4

import dagster as dg
from dagster._core.storage.runs import SqlRunStorage
from filelock import FileLock
from pydantic import TypeAdapter, ValidationError

from tableau_pipeline.core.checkpoint import Claim, Closing, Former, Intent, Owner, Record
from tableau_pipeline.core.declaration import file_name
from tableau_pipeline.core.journal import held
from tableau_pipeline.resources import data_dir

RECORD = "tableau_pipeline/record"
# The metadata key under which the previous release stored its state.
_FORMER_STATE = "tableau_pipeline/state"
_PAGE = 25
_LONGEST = 1000
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)


class DagsterJournal:
    """Implements `core.journal.Journal` for one published asset."""

    def __init__(
        self, context: dg.AssetExecutionContext | dg.OpExecutionContext, asset_key: dg.AssetKey
    ) -> None:
        self._context = context
        self._dagster = context.instance
        self._asset_key = asset_key

    @cached_property
    def instance(self) -> str:
        """The id of the instance's run storage; in Dagster+, the name of the deployment.

        Ephemeral instances with the same data folder count as one deployment.
        """
        if self._is_temporary:
            return _kept_name(data_dir() / "instance")
        storage = self._dagster.run_storage
        if isinstance(storage, SqlRunStorage):
            # The first call makes the id. Of several first runs at once each would make one of its
            # own, and all of them find the same one again.
            storage.get_run_storage_id()
            return storage.get_run_storage_id()
        return os.environ.get("DAGSTER_CLOUD_DEPLOYMENT_NAME", "dagster")

    @cached_property
    def owner(self) -> Owner:
        """This attempt of the step, and its process."""
        return Owner(
            run_id=self._context.run.run_id,
            step=_step(self._context),
            attempt=self._context.retry_number,
            boot=_boot(),
            namespace=_namespace(),
            pid=os.getpid(),
        )

    def records(self) -> Sequence[Record]:
        """Return the newest records, back to those of the newest checkpoint."""
        return records_of(self._dagster, self._asset_key)

    def append(self, record: Record) -> None:
        """Store a runless observation of the published asset."""
        self._dagster.report_runless_asset_event(
            dg.AssetObservation(
                self._asset_key,
                description=_described(record),
                metadata={
                    "refresh": record.refresh,
                    RECORD: dg.MetadataValue.json(record.model_dump(mode="json")),
                },
            )
        )

    def has_ended(self, owner: Owner) -> bool:
        """Whether Dagster records the end of the attempt, or its process on this host is gone."""
        if (owner.boot, owner.namespace) == (_boot(), _namespace()) and not _is_alive(owner.pid):
            return True
        run = self._dagster.get_run_by_id(owner.run_id)
        # A deleted run cannot be asked, and its claim would block all others for ever.
        if run is None or run.is_finished:
            return True
        ends = {
            dg.DagsterEventType.STEP_FAILURE,
            dg.DagsterEventType.STEP_SUCCESS,
            dg.DagsterEventType.STEP_UP_FOR_RETRY,
        }
        ended = [
            entry
            for entry in self._dagster.all_logs(owner.run_id, of_type=ends)
            if entry.step_key == owner.step
        ]
        # Dagster stores one such event for each attempt.
        return len(ended) > owner.attempt

    def lock(self, timeout: float) -> AbstractContextManager[None]:
        """Lock this asset on this host. Ephemeral instances do not see each other's records."""
        if not self._is_temporary:
            return nullcontext()
        key = self._asset_key.to_user_string()
        lock = FileLock(data_dir() / "locks" / f"{file_name(key)}.lock")
        return held(lock, by=f"Another refresh of {key}", timeout=timeout)

    @property
    def _is_temporary(self) -> bool:
        return self._dagster.is_ephemeral or not os.environ.get("DAGSTER_HOME")


def records_of(instance: dg.DagsterInstance, asset_key: dg.AssetKey) -> list[Record]:
    """Return the newest records of a published asset, back to the start of its last checkpoint."""
    found: list[Record] = []
    cursor = None
    # Without a checkpoint, a data source must not make each refresh read its whole history.
    for _ in range(0, _LONGEST, _PAGE):
        page = instance.fetch_observations(
            dg.AssetRecordsFilter(asset_key=asset_key), limit=_PAGE, cursor=cursor
        )
        found += [each for record in page.records if (each := record_in(record))]
        if _has_newest_checkpoint(found):
            return found
        if not page.has_more:
            break
        cursor = page.cursor
    former = _former(instance, asset_key)
    return [*found, former] if former else found


def _has_newest_checkpoint(newest: Sequence[Record]) -> bool:
    """Whether older records cannot change the result.

    A checkpoint that was stored late may hide a newer one. A claim is stored after all claims with
    lower numbers, so once the checkpoint's own claim is here, all newer records are.
    """
    checkpoints = [each for each in newest if isinstance(each, Closing) and each.checkpoint]
    last = max(checkpoints, key=lambda each: each.refresh, default=None)
    claims = {each.id for each in newest if isinstance(each, Claim)}
    return last is not None and last.claim in claims


def record_in(record: dg.EventLogRecord) -> Record | None:
    """Return the record in an observation; None if it holds none, or one of a later format."""
    observation = record.asset_observation
    value = observation.metadata.get(RECORD) if observation else None
    if not isinstance(value, dg.JsonMetadataValue):
        return None
    try:
        return _RECORD.validate_json(json.dumps(value.data))
    except ValidationError:
        return None


def _former(instance: dg.DagsterInstance, asset_key: dg.AssetKey) -> Former | None:
    """Return the state in the newest materialization of the previous release; None if none."""
    for record in instance.fetch_materializations(asset_key, limit=_PAGE).records:
        materialization = record.asset_materialization
        value = materialization.metadata.get(_FORMER_STATE) if materialization else None
        if isinstance(value, dg.JsonMetadataValue):
            return Former.of(value.data)
    return None


def _described(record: Record) -> str:
    match record:
        case Claim(refresh=number):
            return f"refresh {number} begins"
        case Intent():
            return f"{record.action}: {record.outcome or record.job_id or 'not yet sent'}"
        case Closing(refresh=number, checkpoint=checkpoint, withdrawn=withdrawn):
            if withdrawn:
                return f"refresh {number} withdraws: another one was first"
            ended = "the data source equals its models" if checkpoint else "without a result"
            return f"refresh {number} ends: {ended}"
        case _:
            return "a record of an earlier release"


def _kept_name(path: Path) -> str:
    """Return the name stored in a file; create a new one if the file is absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two first runs at once have to agree on one name.
    with FileLock(f"{path}.lock"):
        name = path.read_text(encoding="ascii") if path.exists() else ""
        if not name:
            name = str(uuid4())
            path.write_text(name, encoding="ascii")
        return name


def _step(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> str:
    op = context.op_execution_context if isinstance(context, dg.AssetExecutionContext) else context
    return op.get_step_execution_context().step.key


def _boot() -> str:
    """Return an id of this boot of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def _namespace() -> str:
    """Return the process namespace: process ids are comparable within one only."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        # Without namespaces, all processes of the host have comparable ids.
        return ""


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # The process exists, but belongs to another user.
        return True
    return True
