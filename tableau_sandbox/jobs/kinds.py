"""The kinds of jobs: how each kind is queued, what it does, and how its answer looks."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path

from tableau_sandbox import publishing
from tableau_sandbox.batch.engine import apply_batch
from tableau_sandbox.batch.grammar import parse_batch
from tableau_sandbox.batch.tables import BatchError
from tableau_sandbox.clock import moment_of, stamp
from tableau_sandbox.content.hyper_file import read_hyper_file
from tableau_sandbox.content.uploaded import discard, read_content
from tableau_sandbox.hyperd import UnreadableFileError, without_paths
from tableau_sandbox.publishing import Publication
from tableau_sandbox.services import Services
from tableau_sandbox.store import datasources, jobs
from tableau_sandbox.store.records import Datasource, Job

PUBLISH = "publish_datasource"
REFRESH = "refresh_extracts"
UPDATE = "update_uploaded_file"
_REFRESH_NOTES = (
    "The sandbox cannot reach the database behind the extract; the data stay as they are."
)
_logger = logging.getLogger(__name__)
Commit = Callable[[], str | None]


class JobFailedError(RuntimeError):
    """A job fails; the message becomes the note of the job."""


@dataclass(frozen=True)
class JobKind:
    """One kind of job.

    Attributes:
        job_type: the name of the kind in the answer to a query of one job.
        prepare: prepares the effect of the job, and returns a function that applies the effect.
            This function runs in the transaction in which the job succeeds, so that the effect and
            the success happen together. The function returns the stamp of the effect, or None; the
            job completes at this stamp or later.
        detail: the name of the element that describes the data source of the job. The answer has
            this element once the parameters of the job contain `datasource`, its id and name. The
            parameters may also contain the id of a `connection`.
        clean_up: removes the files of the job; called once, however the job ends.
        notes_first: whether the notes come first in the element `detail`.
    """

    job_type: str
    prepare: Callable[[Services, Job], Commit]
    detail: str
    clean_up: Callable[[Services, Job], None] = lambda services, job: None
    notes_first: bool = False


def queue_publish(services: Services, publication: Publication, *, file: str) -> Job:
    """Queue the publishing of a file in `incoming/`."""
    return jobs.add_job(
        services.database,
        site=publication.site,
        user=publication.user,
        kind=PUBLISH,
        title=publication.name,
        parameters={"publication": asdict(publication), "file": file},
        created_at=services.now(),
    )


def _prepare_publish(services: Services, job: Job) -> Commit:
    publication = Publication(**job.parameters["publication"])
    _check_without_reason(services, publication)
    content = read_content(
        services.files.incoming / job.parameters["file"],
        name=publication.name,
        file_type=publication.file_type,
        table_ids=services.options.table_ids,
    )
    if publishing.has_too_many_tables(services, publication, content):
        raise JobFailedError
    prepared = publishing.prepare(services, publication, content)

    def take_effect() -> str:
        published = publishing.commit(services, prepared)
        about = {"datasource": {"id": published.luid, "name": published.name}}
        sql = "UPDATE job SET payload = ? WHERE luid = ?"
        services.database.change(sql, json.dumps({**job.parameters, **about}), job.luid)
        return _stamp_job(services, published)

    return take_effect


def _check_without_reason(services: Services, publication: Publication) -> None:
    """Let a publish fail without a note in the cases in which real servers do so."""
    target = publishing.target_of(services, publication)
    is_taken = target is not None and publication.mode == publishing.CREATE_NEW
    if is_taken and services.options.taken_name == "in-job":
        raise JobFailedError
    if publication.mode == publishing.REPLACE and services.options.replace == "fails":
        raise JobFailedError


def _clean_up_publish(services: Services, job: Job) -> None:
    discard(services.files.incoming / job.parameters["file"])


_PUBLISH = JobKind(
    "PublishDatasource",
    prepare=_prepare_publish,
    clean_up=_clean_up_publish,
    detail="publishDatasourceJob",
)


def _queue(
    services: Services, kind: str, datasource: Datasource, *, user: str, **parameters: str | None
) -> Job:
    return jobs.add_job(
        services.database,
        site=datasource.site,
        user=user,
        kind=kind,
        title=datasource.name,
        parameters={"datasource": {"id": datasource.luid, "name": datasource.name}, **parameters},
        created_at=services.now(),
    )


def queue_refresh(services: Services, datasource: Datasource, *, user: str) -> Job | None:
    """Queue a refresh; return None if a refresh of the data source is queued or in progress."""
    with services.database.transaction():
        for job in jobs.unfinished_jobs(services.database):
            if job.kind == REFRESH and job.parameters["datasource"]["id"] == datasource.luid:
                return None
        return _queue(services, REFRESH, datasource, user=user)


def _prepare_refresh(services: Services, job: Job) -> Commit:
    def take_effect() -> None:
        luid = job.parameters["datasource"]["id"]
        if services.database.find(Datasource, luid=luid) is None:
            raise JobFailedError(f"The data source '{job.title}' was deleted.")
        sql = "UPDATE job SET notes = ? WHERE luid = ?"
        services.database.change(sql, _REFRESH_NOTES, job.luid)

    return take_effect


_REFRESH = JobKind(
    "RefreshExtract",
    prepare=_prepare_refresh,
    detail="extractRefreshJob",
    notes_first=True,
)


def is_updated(services: Services, datasource: Datasource) -> bool:
    """Whether an update of a data source is queued or in progress."""
    return any(
        job.kind == UPDATE and job.parameters["datasource"]["id"] == datasource.luid
        for job in jobs.unfinished_jobs(services.database)
    )


def queue_update(
    services: Services, datasource: Datasource, *, user: str, batch: bytes, payload: Path | None
) -> Job:
    """Queue an update by a batch that has been checked; a payload is a file in `incoming/`."""
    parameters = {
        "connection": datasource.connection,
        "batch": batch.decode(),
        "payload": payload.name if payload else None,
    }
    return _queue(services, UPDATE, datasource, user=user, **parameters)


def _prepare_update(services: Services, job: Job) -> Commit:
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
        return _commit_update(services, job, file=updated, tables=tables)

    return take_effect


def _commit_update(services: Services, job: Job, *, file: Path, tables: str) -> str:
    current, options = _datasource(services, job), services.options
    size = file.stat().st_size
    moves = options.updates_move_stamp == "at-once"
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
    services.database.save("datasource", vars(changed))
    if options.update_revisions:
        datasources.add_revision(
            services.database,
            changed,
            publisher=job.user,
            published_at=effective_at,
            keep=options.kept_revisions,
        )
    if options.updates_move_stamp == "late":
        # Round as the clock does: an advance of the clock by exactly this time makes the stamp due.
        due = round(services.now_seconds() + options.late_stamp_seconds, 6)
        services.database.add("late_stamp", datasource=current.luid, due=due)
    return _stamp_job(services, changed) if moves else effective_at


def _datasource(services: Services, job: Job) -> Datasource:
    found = services.database.find(Datasource, luid=job.parameters["datasource"]["id"])
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


def _clean_up_update(services: Services, job: Job) -> None:
    for leftover in (_payload(services, job), _updated(services, job)):
        if leftover is not None:
            leftover.unlink(missing_ok=True)


_UPDATE = JobKind(
    "UpdateUploadedFile",
    prepare=_prepare_update,
    clean_up=_clean_up_update,
    detail="updateUploadedFileJob",
)


def _stamp_job(services: Services, changed: Datasource) -> str:
    """With the option `job_stamps` set to "after", make `updatedAt` later than the change.

    Returns:
        The stamp of the change; the job completes at this stamp or later.
    """
    if services.options.job_stamps == "after":
        late = timedelta(seconds=services.options.late_stamp_seconds)
        after = stamp(moment_of(changed.updated_at) + late)
        services.database.save("datasource", vars(replace(changed, updated_at=after)))
    return changed.updated_at


KINDS: Mapping[str, JobKind] = {PUBLISH: _PUBLISH, REFRESH: _REFRESH, UPDATE: _UPDATE}
