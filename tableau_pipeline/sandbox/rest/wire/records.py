"""The elements of the API for the records of the store."""

from tableau_pipeline.sandbox.jobs.kinds import JobKind
from tableau_pipeline.sandbox.rest.wire.elements import Element, listing
from tableau_pipeline.sandbox.store import jobs
from tableau_pipeline.sandbox.store.records import (
    ConnectionSettings,
    Datasource,
    Job,
    Project,
    Revision,
    Site,
    User,
)

_MEGABYTE = 1 << 20
_FINISH_CODES = {jobs.SUCCESS: 0, jobs.FAILED: 1, jobs.CANCELLED: 2}


def megabytes(size: int) -> int:
    """Convert bytes to whole megabytes, rounded up, as the API shows them."""
    return -(-size // _MEGABYTE)


def site_element(site: Site) -> Element:
    """Return the element of a site."""
    return Element(
        "site",
        {
            "id": site.luid,
            "name": site.name,
            "contentUrl": site.content_url,
            "adminMode": "ContentAndUsers",
            "state": "Active",
        },
    )


def user_element(user: User) -> Element:
    """Return the element of a user."""
    return Element(
        "user",
        {"id": user.luid, "name": user.name, "siteRole": user.site_role, "fullName": user.name},
    )


def project_element(project: Project) -> Element:
    """Return the element of a project."""
    return Element(
        "project",
        {
            "id": project.luid,
            "name": project.name,
            "description": project.description,
            "createdAt": project.created_at,
            "updatedAt": project.updated_at,
            "contentPermissions": project.content_permissions,
            "parentProjectId": project.parent,
            "topLevelProject": project.parent is None,
            "writeable": True,
        },
        (Element("owner", {"id": project.owner}),),
    )


def datasource_element(datasource: Datasource, *, base_url: str) -> Element:
    """Return the element of a data source."""
    return Element(
        "datasource",
        {
            "id": datasource.luid,
            "name": datasource.name,
            "contentUrl": datasource.content_url,
            "type": datasource.connection_class,
            "createdAt": datasource.created_at,
            "updatedAt": datasource.updated_at,
            "description": datasource.description or None,
            "size": megabytes(datasource.hyper_bytes),
            "isCertified": bool(datasource.is_certified),
            "certificationNote": datasource.certification_note or None,
            "encryptExtracts": bool(datasource.encrypt_extracts),
            "hasExtracts": bool(datasource.has_extracts),
            "useRemoteQueryAgent": bool(datasource.use_remote_query_agent),
            # There are clients that print this address after a publish, and fail without it.
            "webpageUrl": f"{base_url}/datasources/{datasource.luid}",
        },
        (
            Element("project", {"id": datasource.project, "name": datasource.project_name}),
            Element("owner", {"id": datasource.owner}),
            tags_element(datasource.tags),
        ),
    )


def tags_element(labels: tuple[str, ...]) -> Element:
    """Return the element of a list of tags."""
    return listing("tags", (Element("tag", {"label": label}) for label in labels))


def revision_element(revision: Revision, *, current: int) -> Element:
    """Return the element of a revision, current or earlier."""
    return Element(
        "revision",
        {
            "revisionNumber": revision.number,
            "publishedAt": revision.published_at,
            "deleted": False,
            "current": revision.number == current,
            "sizeInBytes": revision.hyper_bytes,
        },
        (Element("publisher", {"id": revision.publisher, "name": revision.publisher_name}),),
    )


def connection_element(datasource: Datasource, settings: ConnectionSettings) -> Element:
    """Return the element of the one connection of a data source."""
    return Element(
        "connection",
        {
            "id": datasource.connection,
            "type": datasource.connection_class,
            "dbName": datasource.packaged_path,
            "serverAddress": settings.server_address,
            "serverPort": settings.server_port,
            "userName": settings.user_name,
            "embedPassword": bool(settings.embed_password),
            "queryTaggingEnabled": True,
        },
        (Element("datasource", {"id": datasource.luid, "name": datasource.name}),),
    )


def job_element(job: Job, *, kind: JobKind, early_finish_code: bool = False) -> Element:
    """Return the element of a job. Clients recognize an unfinished job by its lack of an end.

    With `early_finish_code`, it has the finish code of success from the start.
    """
    children: tuple[Element, ...] = (Element("notes", text=job.notes),) if job.notes else ()
    if datasource := job.parameters.get("datasource"):
        about = [Element("datasource", datasource)]
        if connection := job.parameters.get("connection"):
            about.append(Element("connectionLuid", text=connection))
        children = (Element(kind.detail, children=(*about, *children)),)
    return Element(
        "job",
        {
            "id": job.luid,
            "mode": "Asynchronous",
            "type": kind.job_type,
            "progress": 100 if job.completed_at else 0,
            "createdAt": job.created_at,
            "startedAt": job.started_at,
            "completedAt": job.completed_at,
            "finishCode": _FINISH_CODES.get(job.status, 0 if early_finish_code else None),
        },
        children,
    )


def background_job_element(job: Job) -> Element:
    """Return the element of a job in a list."""
    return Element(
        "backgroundJob",
        {
            "id": job.luid,
            "status": job.status,
            "createdAt": job.created_at,
            "startedAt": job.started_at,
            "endedAt": job.completed_at,
            "priority": 50,
            "jobType": job.kind,
            "title": job.title,
        },
    )
