"""The elements of the API for the records of the store."""

import re
from collections.abc import Iterator

from tableau_sandbox.jobs.kinds import JobKind
from tableau_sandbox.rest.wire.elements import Element, listing
from tableau_sandbox.store import jobs
from tableau_sandbox.store.records import (
    ConnectionSettings,
    Contents,
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


def site_element(site: Site, *, revision_limit: int | None) -> Element:
    """Return the element of a site; without a limit, it keeps no revisions."""
    return Element(
        "site",
        {
            "id": site.luid,
            "name": site.name,
            "contentUrl": site.content_url,
            "adminMode": "ContentAndUsers",
            "state": "Active",
            "revisionHistoryEnabled": revision_limit is not None,
            "revisionLimit": revision_limit,
        },
    )


def user_element(user: User) -> Element:
    """Return the element of a user."""
    return Element(
        "user",
        {"id": user.luid, "name": user.name, "siteRole": user.site_role, "fullName": user.name},
    )


def owner_element(luid: str, name: str) -> Element:
    """Return the element of the user who owns something."""
    return Element("owner", {"id": luid, "name": name, "fullName": name})


def project_element(project: Project, *, owner_name: str, contents: Contents) -> Element:
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
        (
            owner_element(project.owner, owner_name),
            Element(
                "contentsCounts",
                {
                    "projectCount": contents.projects,
                    "workbookCount": 0,
                    "viewCount": 0,
                    # Clients request the first spelling, and some fail at another one in older
                    # versions. Tableau's own client reads the second.
                    "datasourceCount": contents.datasources,
                    "dataSourceCount": contents.datasources,
                },
            ),
        ),
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
            "isPublished": True,
            "useRemoteQueryAgent": bool(datasource.use_remote_query_agent),
            # There are clients that print this address after a publish, and fail without it.
            "webpageUrl": f"{base_url}/datasources/{datasource.luid}",
        },
        (
            Element("project", {"id": datasource.project, "name": datasource.project_name}),
            owner_element(datasource.owner, datasource.owner_name),
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
            "serverAddress": settings.server_address,
            "serverPort": settings.server_port or None,
            "userName": settings.user_name,
            "embedPassword": bool(settings.embed_password),
            "queryTaggingEnabled": True,
        },
        (Element("datasource", {"id": datasource.luid, "name": datasource.name}),),
    )


def job_element(
    job: Job, *, kind: JobKind, early_finish_code: int | None = None, progress: bool = True
) -> Element:
    """Return the element of a job. Clients recognize an unfinished job by its lack of an end.

    Args:
        early_finish_code: the finish code that it has before it ends; None for none.
        progress: whether the element has the attribute `progress`.
    """
    done = 100 if job.completed_at else 0
    return Element(
        "job",
        {
            "id": job.luid,
            "mode": "Asynchronous",
            "type": kind.job_type,
            "progress": done if progress else None,
            "createdAt": job.created_at,
            "startedAt": job.started_at,
            "completedAt": job.completed_at,
            "finishCode": _FINISH_CODES.get(job.status, early_finish_code),
        },
        tuple(_about(job, kind)),
    )


def _about(job: Job, kind: JobKind) -> Iterator[Element]:
    datasource = job.parameters.get("datasource")
    if datasource is None:
        if job.notes and job.status == jobs.FAILED:
            yield listing("statusNotes", [_status_note(job.notes)])
        return
    about = [Element("datasource", datasource)]
    if connection := job.parameters.get("connection"):
        about.append(Element("connectionLuid", text=connection))
    notes = [Element("notes", text=job.notes)] if job.notes else []
    children = [*notes, *about] if kind.notes_first else [*about, *notes]
    yield Element(kind.detail, children=tuple(children))


def _status_note(notes: str) -> Element:
    code = re.match("[0-9]{6}", notes)
    if code is None:
        return Element("statusNote", {"type": "message", "value": notes, "text": notes})
    return Element("statusNote", {"type": "errorCode", "value": code.group(), "text": notes})


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
