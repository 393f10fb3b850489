"""Answers: the elements of the API for records, and their form in XML and JSON."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from xml.etree import ElementTree

from starlette.requests import Request
from starlette.responses import Response

from tableau_sandbox.access import Rule
from tableau_sandbox.errors import RestError
from tableau_sandbox.jobs.kinds import JobKind
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

NAMESPACE = "http://tableau.com/api"
_XSI = "http://www.w3.org/2001/XMLSchema-instance"
_SCHEMAS = "https://help.tableau.com/samples/en-us/rest_api/"
NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Element:
    """A piece of an answer, before it becomes XML or JSON.

    Attributes:
        name: the name of the XML element, or of the JSON key.
        attributes: attributes without a value are left out.
        children: in the order in which they are written.
        text: the text, for an element without attributes and children.
        is_list: whether the children are items of one list.
        repeated: whether it may be one of several children with its name.
    """

    name: str
    attributes: Mapping[str, str | int | bool | None] = field(default_factory=dict)
    children: tuple["Element", ...] = ()
    text: str | None = None
    is_list: bool = False
    repeated: bool = False

    def written_attributes(self) -> dict[str, str]:
        """Return the attributes as the API writes them."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self.attributes.items()
            if value is not None
        }


@dataclass(frozen=True)
class Reply:
    """An answer of the API before it is written as XML or JSON."""

    status: int
    elements: tuple[Element, ...]


def listing(name: str, items: Iterable[Element]) -> Element:
    """Return an element with a list."""
    return Element(name, children=tuple(items), is_list=True)


def as_xml(elements: Iterable[Element], *, rest_version: str) -> bytes:
    """Write the elements as an XML document of the API."""
    schema_file = f"ts-api_{rest_version.replace('.', '_')}.xsd"
    root = ElementTree.Element(
        "tsResponse",
        {
            "xmlns": NAMESPACE,
            "xmlns:xsi": _XSI,
            "xsi:schemaLocation": f"{NAMESPACE} {_SCHEMAS}{schema_file}",
        },
    )
    for element in elements:
        _append(root, element)
    # Clients expect the declaration at the very start, with double quotes.
    return b'<?xml version="1.0" encoding="UTF-8"?>' + ElementTree.tostring(root, encoding="utf-8")


def as_json(elements: Iterable[Element]) -> bytes:
    """Write the elements as a JSON document of the API."""
    return json.dumps({element.name: _json(element) for element in elements}).encode()


def _append(parent: ElementTree.Element, element: Element) -> None:
    attributes = {
        name: NOT_IN_XML.sub("\ufffd", value)
        for name, value in element.written_attributes().items()
    }
    node = ElementTree.SubElement(parent, element.name, attributes)
    if element.text is not None:
        node.text = NOT_IN_XML.sub("\ufffd", element.text)
    for child in element.children:
        _append(node, child)


def _json(element: Element) -> object:
    if element.text is not None and not element.attributes and not element.children:
        return element.text
    if element.is_list:
        items = [_json(child) for child in element.children]
        return {element.children[0].name: items} if items else {}
    children: dict[str, object] = {
        child.name: _json(child) for child in element.children if not child.repeated
    }
    for name in {child.name for child in element.children if child.repeated}:
        children[name] = [_json(child) for child in element.children if child.name == name]
    value = {} if element.text is None else {"value": element.text}
    return {**value, **element.written_attributes(), **children}


# A client that fails at any attribute it does not know is in use with version 3.18, and knows none
# of these. When exactly they came is not documented.
_SINCE = {
    ("datasource", "size"): (3, 19),
    ("owner", "name"): (3, 19),
    ("owner", "fullName"): (3, 19),
    ("contentsCounts", "dataSourceCount"): (3, 19),
}


def as_of(elements: Iterable[Element], path: str) -> tuple[Element, ...]:
    """Return elements without what is newer than the API version in the path of the call."""
    found = re.match(r"/+api/+(\d{1,3})\.(\d{1,3})/", path)
    if found is None:
        return tuple(elements)
    return tuple(_as_of(element, (int(found[1]), int(found[2]))) for element in elements)


def _as_of(element: Element, version: tuple[int, int]) -> Element:
    if version >= max(_SINCE.values()):
        return element
    attributes = {
        name: value
        for name, value in element.attributes.items()
        if version >= _SINCE.get((element.name, name), version)
    }
    children = tuple(_as_of(child, version) for child in element.children)
    return replace(element, attributes=attributes, children=children)


def write_reply(request: Request, reply: Reply, *, rest_version: str) -> Response:
    """Write a reply as XML, or as JSON if the client requests it."""
    elements = as_of(reply.elements, request.url.path)
    # Only this header decides: there are clients that send JSON, and read answers in XML only.
    if "application/json" in request.headers.get("Accept", ""):
        return Response(as_json(elements), reply.status, media_type="application/json")
    body = as_xml(elements, rest_version=rest_version)
    return Response(body, reply.status, media_type="application/xml")


def write_error(request: Request, error: RestError, *, rest_version: str) -> Response:
    """Write a refusal in the same way."""
    children = (Element("summary", text=error.summary), Element("detail", text=error.detail))
    element = Element("error", {"code": error.code}, children)
    return write_reply(request, Reply(error.status, (element,)), rest_version=rest_version)


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
        rules: its rules.
        groups: the LUIDs of all groups; other grantees are users.
        parent: the LUID of the project whose rules these are, if it locks those of `thing`.
    """
    name = "project" if isinstance(thing, Project) else "datasource"
    owner = Element("owner", {"id": thing.owner})
    item = Element(name, {"id": thing.luid, "name": thing.name}, (owner,))
    locking = Element("parent", {"type": "Project", "id": parent})
    by_grantee = sorted(rules, key=lambda rule: rule.grantee)
    return Element(
        "permissions",
        children=(
            *((locking,) if parent else ()),
            item,
            *(
                _grantee_element(luid, list(own), kind="group" if luid in groups else "user")
                for luid, own in groupby(by_grantee, key=lambda rule: rule.grantee)
            ),
        ),
    )


def _grantee_element(luid: str, rules: Sequence[Rule], *, kind: str) -> Element:
    capabilities = listing(
        "capabilities",
        (Element("capability", {"name": rule.capability, "mode": rule.mode}) for rule in rules),
    )
    return Element(
        "granteeCapabilities", children=(Element(kind, {"id": luid}), capabilities), repeated=True
    )
