"""Update the data of a data source in the background."""

import json
import logging
from dataclasses import asdict, replace
from pathlib import Path

from tableau_sandbox.batch.engine import apply_batch
from tableau_sandbox.batch.errors import BatchError
from tableau_sandbox.batch.grammar.batches import parse_batch
from tableau_sandbox.content.hyper_file import read_hyper_file
from tableau_sandbox.hyperd import UnreadableFileError, without_paths
from tableau_sandbox.jobs.kinds import Commit, JobFailedError, JobKind
from tableau_sandbox.jobs.stamps import stamp_job
from tableau_sandbox.quirks import UpdatesMoveStamp
from tableau_sandbox.services import Services
from tableau_sandbox.store import datasources, jobs, late_stamps, revisions
from tableau_sandbox.store.records import Datasource, Job

KIND = "update_uploaded_file"
_logger = logging.getLogger(__name__)


def queue_update(
    services: Services, datasource: Datasource, *, user: str, batch: bytes, payload: Path | None
) -> Job:
    """Queue an update by a batch that has been parsed, and a file in `incoming/`."""
    return jobs.add_job(
        services.database,
        site=datasource.site,
        user=user,
        kind=KIND,
        title=datasource.name,
        parameters={
            "datasource": {"id": datasource.luid, "name": datasource.name},
            "connection": datasource.connection,
            "batch": batch.decode(),
            "payload": payload.name if payload else None,
        },
        created_at=services.now(),
    )


def _prepare(services: Services, job: Job) -> Commit:
    updated, payload = _updated(services, job), _payload(services, job)
    current = _datasource(services, job)
    if current.connection_class != "hyper" or current.has_extracts:
        _logger.warning("job %s: '%s' is no live-to-Hyper data source", job.luid, current.name)
        # Real servers fail such a job without a note.
        raise JobFailedError
    published = services.files.content / current.hyper_file
    try:
        apply_batch(
            published,
            payload,
            parse_batch(job.parameters["batch"].encode()),
            updated,
            lenient=services.options.lenient_missing_columns,
        )
        tables = json.dumps(asdict(read_hyper_file(updated))["tables"])
    except BatchError as error:
        files = [file for file in (published, payload, updated) if file is not None]
        raise JobFailedError(without_paths(error.note, *files)) from error
    except UnreadableFileError as error:
        raise JobFailedError(str(error)) from error
    except FileNotFoundError as error:
        raise _deleted() from error

    def take_effect() -> str:
        return _commit(services, job, file=updated, tables=tables)

    return take_effect


def _commit(services: Services, job: Job, *, file: Path, tables: str) -> str:
    current, options = _datasource(services, job), services.options
    size = file.stat().st_size
    moves = options.updates_move_stamp is UpdatesMoveStamp.AT_ONCE
    effective_at = services.stamp_of_change(current.updated_at) if moves else services.now()
    changed = replace(
        current,
        hyper_file=services.files.keep(file, services.files.content, suffix=".hyper"),
        hyper_bytes=size,
        tables=tables,
        updated_at=effective_at if moves else current.updated_at,
        revision=current.revision + options.update_revisions,
    )
    services.remember(current)
    datasources.save_datasource(services.database, changed)
    if options.update_revisions:
        revisions.add_revision(
            services.database,
            changed,
            publisher=job.user,
            published_at=effective_at,
            keep=options.kept_revisions,
        )
    if options.updates_move_stamp is UpdatesMoveStamp.LATE:
        # Rounded like the clock, so that an advance by exactly this time reaches it.
        due = round(services.now_seconds() + options.late_stamp_seconds, 6)
        late_stamps.add_late_stamp(services.database, current.luid, due=due)
    return stamp_job(services, changed) if moves else effective_at


def _datasource(services: Services, job: Job) -> Datasource:
    luid = job.parameters["datasource"]["id"]
    found = datasources.datasource(services.database, job.site, luid)
    if found is None:
        raise _deleted()
    return found


def _deleted() -> JobFailedError:
    return JobFailedError("The data source was deleted before its update took effect.")


def _payload(services: Services, job: Job) -> Path | None:
    name = job.parameters["payload"]
    return services.files.incoming / name if name else None


def _updated(services: Services, job: Job) -> Path:
    return services.files.incoming / f"{job.luid}.hyper"


def _clean_up(services: Services, job: Job) -> None:
    for leftover in (_payload(services, job), _updated(services, job)):
        if leftover is not None:
            leftover.unlink(missing_ok=True)


UPDATE_DATA = JobKind(
    "UpdateUploadedFile",
    prepare=_prepare,
    clean_up=_clean_up,
    detail="updateUploadedFileJob",
)
