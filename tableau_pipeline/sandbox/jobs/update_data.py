"""Updating the data of a data source in the background."""

import json
import logging
from dataclasses import asdict, replace
from pathlib import Path

from tableau_pipeline.sandbox.batch.engine import apply_batch
from tableau_pipeline.sandbox.batch.errors import BatchError
from tableau_pipeline.sandbox.batch.grammar import parse_batch
from tableau_pipeline.sandbox.clock import stamp_after
from tableau_pipeline.sandbox.content.hyper_file import read_hyper_file
from tableau_pipeline.sandbox.hyperd import UnreadableFileError
from tableau_pipeline.sandbox.jobs.kinds import Commit, JobFailedError, JobKind
from tableau_pipeline.sandbox.open_questions import UpdatedAt
from tableau_pipeline.sandbox.services import Services
from tableau_pipeline.sandbox.store import datasources, jobs, late_stamps
from tableau_pipeline.sandbox.store.records import Datasource, Job

KIND = "update_uploaded_file"
LATE_SECONDS = 2
_logger = logging.getLogger(__name__)


def queue_update(
    services: Services, datasource: Datasource, *, user: str, batch: bytes, payload: Path | None
) -> Job:
    """Queue an update by a batch that was parsed before, and a file in `incoming/`."""
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
        # Real servers fail such a job, and say nothing.
        raise JobFailedError
    try:
        apply_batch(
            services.files.content / current.hyper_file,
            payload,
            parse_batch(job.parameters["batch"].encode()),
            updated,
            lenient=services.options.lenient_missing_columns,
        )
        tables = json.dumps(asdict(read_hyper_file(updated))["tables"])
    except BatchError as error:
        raise JobFailedError(error.note) from error
    except UnreadableFileError as error:
        raise JobFailedError(str(error)) from error
    except FileNotFoundError as error:
        raise _deleted() from error

    def take_effect() -> None:
        _commit(services, _datasource(services, job), file=updated, tables=tables)

    return take_effect


def _commit(services: Services, current: Datasource, *, file: Path, tables: str) -> None:
    size = file.stat().st_size
    moment = services.options.updated_at
    updated_at = current.updated_at
    if moment is UpdatedAt.MOVES:
        updated_at = stamp_after(updated_at, services.clock())
    changed = replace(
        current,
        hyper_file=services.files.keep(file, services.files.content, suffix=".hyper"),
        hyper_bytes=size,
        tables=tables,
        updated_at=updated_at,
    )
    datasources.save_datasource(services.database, changed)
    if moment is UpdatedAt.MOVES_LATE:
        due = services.now_seconds() + LATE_SECONDS
        late_stamps.add_late_stamp(services.database, current.luid, due=due)


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
