"""Publish in the background."""

from dataclasses import asdict

from tableau_sandbox.content.uploaded import discard, read_content
from tableau_sandbox.jobs.kinds import Commit, JobKind
from tableau_sandbox.jobs.stamps import stamp_job
from tableau_sandbox.publishing import Publication, commit, prepare
from tableau_sandbox.services import Services
from tableau_sandbox.store import jobs
from tableau_sandbox.store.records import Job

KIND = "publish_datasource"


def queue_publish(services: Services, publication: Publication, *, file: str) -> Job:
    """Queue the publishing of a file in `incoming/`."""
    return jobs.add_job(
        services.database,
        site=publication.site,
        user=publication.user,
        kind=KIND,
        title=publication.name,
        parameters={"publication": asdict(publication), "file": file},
        created_at=services.now(),
    )


def _prepare(services: Services, job: Job) -> Commit:
    publication = Publication(**job.parameters["publication"])
    content = read_content(
        services.files.incoming / job.parameters["file"],
        name=publication.name,
        file_type=publication.file_type,
        hyper_profile=services.options.hyper_profile,
    )
    prepared = prepare(services, publication, content)

    def take_effect() -> str:
        published = commit(services, prepared)
        if services.options.publish_jobs_name_target:
            jobs.name_datasource(
                services.database, job.luid, datasource=published.luid, name=published.name
            )
        return stamp_job(services, published)

    return take_effect


def _clean_up(services: Services, job: Job) -> None:
    discard(services.files.incoming / job.parameters["file"])


PUBLISH = JobKind(
    "PublishDatasource", prepare=_prepare, clean_up=_clean_up, detail="publishDatasourceJob"
)
