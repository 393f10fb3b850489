"""Write answers in XML: the elements of the API for the records of the store."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from starlette.responses import Response

from tableau_sandbox.access import Rule
from tableau_sandbox.errors import RestError
from tableau_sandbox.jobs.kinds import JobKind
from tableau_sandbox.store import jobs
from tableau_sandbox.store.records import (
    ConnectionSettings,
    Datasource,
    Group,
    Job,
    Project,
    QualityWarning,
    Revision,
    Site,
    User,
)

NAMESPACE = "http://tableau.com/api"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_SCHEMAS = "https://help.tableau.com/samples/en-us/rest_api/"
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MEGABYTE = 1 << 20
_FINISH_CODES = {jobs.SUCCESS: 0, jobs.FAILED: 1, jobs.CANCELLED: 2}


class Reply:
    """An answer of the API before it is written."""

    def __init__(self, status: int, *elements: Element):
        self.status = status
        self.elements = elements


def element(
    name: str,
    attributes: Mapping[str, str | int | bool | None] | None = None,
    *children: Element,
    text: str | None = None,
) -> Element:
    """Return an element of an answer; omit attributes without a value."""
    made = Element(name)
    for key, value in (attributes or {}).items():
        if value is not None:
            made.set(key, _written(str(value).lower() if isinstance(value, bool) else str(value)))
    made.text = None if text is None else _written(text)
    made.extend(children)
    return made


def _written(text: str) -> str:
    return _NOT_IN_XML.sub("\ufffd", text)


def write_reply(reply: Reply, *, rest_version: str) -> Response:
    """Write a reply as an XML document of the API."""
    schema_file = f"ts-api_{rest_version.replace('.', '_')}.xsd"
    root = element(
        "tsResponse",
        {
            "xmlns": NAMESPACE,
            "xmlns:xsi": _XSI,
            "xsi:schemaLocation": f"{NAMESPACE} {_SCHEMAS}{schema_file}",
        },
        *reply.elements,
    )
    # Clients expect the XML declaration at the very start, with double quotes.
    declaration = b'<?xml version="1.0" encoding="UTF-8"?>'
    body = declaration + ElementTree.tostring(root, encoding="utf-8")
    return Response(body, reply.status, media_type="application/xml")


def write_error(error: RestError, *, rest_version: str) -> Response:
    """Write a refusal as an XML document of the API."""
    summary, detail = element("summary", text=error.summary), element("detail", text=error.detail)
    written = element("error", {"code": error.code}, summary, detail)
    return write_reply(Reply(error.status, written), rest_version=rest_version)


def megabytes(size: int) -> int:
    """Convert bytes to whole megabytes as the API shows sizes: rounded up."""
    return -(-size // _MEGABYTE)


def site_element(site: Site, *, revision_limit: int | None) -> Element:
    """Return the element of a site. Without a revision limit, the site keeps no revisions."""
    return element(
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
    return element(
        "user",
        {"id": user.luid, "name": user.name, "siteRole": user.site_role, "fullName": user.name},
    )


def owner_element(luid: str, name: str) -> Element:
    """Return the element of an object's owner."""
    return element("owner", {"id": luid, "name": name, "fullName": name})


def project_element(project: Project) -> Element:
    """Return the element of a project."""
    counts = {
        "projectCount": project.children,
        "workbookCount": 0,
        "viewCount": 0,
        # Clients request the first spelling of this count. Tableau's own client reads the second
        # spelling.
        "datasourceCount": project.datasources,
        "dataSourceCount": project.datasources,
    }
    return element(
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
        owner_element(project.owner, project.owner_name),
        element("contentsCounts", counts),
    )


def datasource_element(datasource: Datasource, *, base_url: str) -> Element:
    """Return the element of a data source."""
    return element(
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
            # Some clients print this address after a publish, and fail if the address is missing.
            "webpageUrl": f"{base_url}/datasources/{datasource.luid}",
        },
        element("project", {"id": datasource.project, "name": datasource.project_name}),
        owner_element(datasource.owner, datasource.owner_name),
        tags_element(datasource.tags),
    )


def tags_element(labels: tuple[str, ...]) -> Element:
    """Return the element of a data source's tags."""
    return element("tags", None, *(element("tag", {"label": label}) for label in labels))


def revision_element(revision: Revision, *, current: int) -> Element:
    """Return the element of the current revision or of an earlier revision."""
    return element(
        "revision",
        {
            "revisionNumber": revision.number,
            "publishedAt": revision.published_at,
            "deleted": False,
            "current": revision.number == current,
            "sizeInBytes": revision.hyper_bytes,
        },
        element("publisher", {"id": revision.publisher, "name": revision.publisher_name}),
    )


def connection_element(datasource: Datasource, settings: ConnectionSettings) -> Element:
    """Return the element of a data source's only connection."""
    return element(
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
        element("datasource", {"id": datasource.luid, "name": datasource.name}),
    )


def job_element(
    job: Job,
    *,
    kind: JobKind,
    early_finish_code: int | None = None,
    progress: bool = True,
    has_error_note: bool = False,
) -> Element:
    """Return the element of a job. Until the job ends, the element has no time of completion.

    Clients recognize an unfinished job by the missing time.

    Args:
        early_finish_code: the finish code before the job ends; None for no finish code.
        progress: whether the element has the attribute `progress`.
        has_error_note: whether a note shows that the job failed, in place of the finish code.
    """
    done = 100 if job.completed_at else 0
    code = _FINISH_CODES.get(job.status, early_finish_code)
    children = [*_about(job, kind)]
    if has_error_note and job.status == jobs.FAILED:
        note = {"type": "errorCode", "value": "400011", "text": job.notes or ""}
        code, children = 0, [element("statusNotes", None, element("statusNote", note))]
    return element(
        "job",
        {
            "id": job.luid,
            "mode": "Asynchronous",
            "type": kind.job_type,
            "progress": done if progress else None,
            "createdAt": job.created_at,
            "startedAt": job.started_at,
            "completedAt": job.completed_at,
            "finishCode": code,
        },
        *children,
    )


def _about(job: Job, kind: JobKind) -> Iterator[Element]:
    datasource = job.parameters.get("datasource")
    if datasource is None:
        if job.notes and job.status == jobs.FAILED:
            yield element("statusNotes", None, _status_note(job.notes))
        return
    about = [element("datasource", datasource)]
    if connection := job.parameters.get("connection"):
        about.append(element("connectionLuid", text=connection))
    notes = [element("notes", text=job.notes)] if job.notes else []
    children = [*notes, *about] if kind.notes_first else [*about, *notes]
    yield element(kind.detail, None, *children)


def _status_note(notes: str) -> Element:
    code = re.match("[0-9]{6}", notes)
    if code is None:
        return element("statusNote", {"type": "message", "value": notes, "text": notes})
    return element("statusNote", {"type": "errorCode", "value": code.group(), "text": notes})


def quality_warning_element(warning: QualityWarning) -> Element:
    """Return the element of a data quality warning of a data source."""
    return element(
        "dataQualityWarning",
        {
            "id": warning.luid,
            "userDisplayName": warning.owner_name,
            "contentId": warning.datasource,
            "contentType": "DATASOURCE",
            "message": warning.message,
            "type": warning.type,
            "isActive": bool(warning.is_active),
            "isSevere": bool(warning.is_severe),
            "createdAt": warning.created_at,
            "updatedAt": warning.updated_at,
        },
        element("owner", {"id": warning.owner}),
    )


def background_job_element(job: Job, *, word: str, title: str | None) -> Element:
    """Return the element of a job in a list; `word` names the kind of job."""
    return element(
        "backgroundJob",
        {
            "id": job.luid,
            "status": job.status,
            "createdAt": job.created_at,
            "startedAt": job.started_at,
            "endedAt": job.completed_at,
            "priority": 50,
            "jobType": word,
            "title": title,
        },
    )


def permissions_element(
    thing: Project | Datasource,
    rules: Sequence[Rule],
    *,
    groups: Collection[str],
    parent: str | None,
) -> Element:
    """Return the element of the rules of a project or a data source.

    Args:
        thing: the project or the data source.
        rules: the rules that count for it.
        groups: the LUIDs of all groups; other grantees are users.
        parent: the LUID of the project whose rules count, if that project locks permissions.
    """
    name = "project" if isinstance(thing, Project) else "datasource"
    owner = element("owner", {"id": thing.owner})
    permissions = element("permissions")
    if parent:
        permissions.append(element("parent", {"type": "Project", "id": parent}))
    permissions.append(element(name, {"id": thing.luid, "name": thing.name}, owner))
    grantee = attrgetter("grantee")
    for luid, own in groupby(sorted(rules, key=grantee), key=grantee):
        kind = element("group" if luid in groups else "user", {"id": luid})
        capabilities = [
            element("capability", {"name": rule.capability, "mode": rule.mode}) for rule in own
        ]
        listed = element("capabilities", None, *capabilities)
        permissions.append(element("granteeCapabilities", None, kind, listed))
    return permissions


def group_element(group: Group) -> Element:
    """Return the element of a group."""
    domain = element("domain", {"name": "local"})
    return element("group", {"id": group.luid, "name": group.name}, domain)
