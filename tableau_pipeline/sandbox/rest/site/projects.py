from collections.abc import Callable
from dataclasses import replace
from xml.etree.ElementTree import Element as XmlElement

from starlette.responses import Response

from tableau_pipeline.sandbox.errors import malformed, not_found, refusal
from tableau_pipeline.sandbox.identity import new_luid
from tableau_pipeline.sandbox.rest.wire.elements import Element
from tableau_pipeline.sandbox.rest.wire.fields import OWNER
from tableau_pipeline.sandbox.rest.wire.lists import (
    flag_field,
    list_page,
    text_field,
    time_field,
)
from tableau_pipeline.sandbox.rest.wire.records import project_element
from tableau_pipeline.sandbox.rest.wire.requests import Call, name_attribute, parse_request
from tableau_pipeline.sandbox.rest.wire.router import Reply, Route
from tableau_pipeline.sandbox.services import Services
from tableau_pipeline.sandbox.store import accounts, projects
from tableau_pipeline.sandbox.store.records import Contents, Project
from tableau_pipeline.sandbox.store.seed import default_project_luid

_PERMISSIONS = (
    "ManagedByOwner",
    "LockedToProject",
    "LockedToProjectWithoutNested",
)
_SELECTABLE = (
    *("id", "name", "description", "createdAt", "updatedAt", "contentPermissions"),
    *("parentProjectId", "topLevelProject", "writeable", "contentsCounts", *OWNER),
)


def query_projects(services: Services, call: Call) -> Reply:
    """List the projects of a site."""
    names = {user.luid: user.name for user in accounts.users(services.database)}
    fields = {
        "name": text_field(lambda project: project.name, any_case=True),
        "parentProjectId": text_field(lambda project: project.parent),
        "topLevelProject": flag_field(lambda project: project.parent is None),
        "ownerName": text_field(lambda project: names[project.owner]),
        "createdAt": time_field(lambda project: project.created_at),
        "updatedAt": time_field(lambda project: project.updated_at),
    }
    found: list[Project] = projects.projects(services.database, call.site.luid)
    return Reply(
        200,
        list_page(
            found,
            call.query,
            fields=fields,
            name="projects",
            write=_writer(services, call),
            selectable=_SELECTABLE,
        ),
    )


def create_project(services: Services, call: Call) -> Reply:
    """Create a project, at the top level or inside another one."""
    request = parse_request(call.body, "project")
    _check_may_manage(call)
    with services.database.transaction():
        parent = _parent(services, call, request.get("parentProjectId", ""))
        project = Project(
            luid=new_luid(),
            site=call.site.luid,
            parent=parent,
            owner=call.user.luid,
            name=name_attribute(request),
            description=request.get("description", ""),
            content_permissions=_content_permissions(request, "ManagedByOwner"),
            created_at=services.now(),
            updated_at=services.now(),
        )
        _check_name_is_free(services, project)
        projects.save_project(services.database, project)
        return Reply(201, (_writer(services, call)(project),))


def update_project(services: Services, call: Call) -> Reply:
    """Change what the request names; an empty request only returns the project."""
    request = parse_request(call.body, "project")
    with services.database.transaction():
        project = _project(services, call)
        changed = _changed(services, call, project=project, request=request)
        if changed != project:
            _check_may_manage(call)
            _check_name_is_free(services, changed)
            changed = replace(changed, updated_at=services.now())
            projects.save_project(services.database, changed)
        return Reply(200, (_writer(services, call)(changed),))


def delete_project(services: Services, call: Call) -> Response:
    """Delete a project with its content."""
    project = _project(services, call)
    if project.luid == default_project_luid(call.site.luid):
        raise refusal("403003", "The default project cannot be deleted.")
    _check_may_manage(call)
    projects.delete_project(services.database, project.luid)
    services.sweep_content()
    return Response(status_code=204)


def _writer(services: Services, call: Call) -> Callable[[Project], Element]:
    """Return a function that writes projects of the site as they are now."""
    names = {user.luid: user.name for user in accounts.users(services.database)}
    contents = projects.contents(services.database, call.site.luid)
    return lambda project: project_element(
        project, owner_name=names[project.owner], contents=contents.get(project.luid, Contents())
    )


def _changed(services: Services, call: Call, *, project: Project, request: XmlElement) -> Project:
    is_default = project.luid == default_project_luid(call.site.luid)
    name = name_attribute(request) if "name" in request.attrib else project.name
    if is_default and name != project.name:
        raise refusal("403005", "The default project cannot be renamed.")
    parent = project.parent
    if "parentProjectId" in request.attrib:
        parent = _parent(services, call, request.attrib["parentProjectId"])
        if parent is not None and parent in _subtree(services, project):
            raise malformed("A project cannot be moved into itself.")
    owner = project.owner
    owner_element = request.find("owner")
    if owner_element is not None:
        owner = owner_element.get("id", "")
        if accounts.user(services.database, owner) is None:
            raise not_found("User", owner, code="404002")
    return replace(
        project,
        name=name,
        parent=parent,
        owner=owner,
        description=request.get("description", project.description),
        content_permissions=_content_permissions(request, project.content_permissions),
    )


def _project(services: Services, call: Call) -> Project:
    luid = call.path["project"]
    project = projects.project(services.database, call.site.luid, luid)
    if project is None:
        raise not_found("Project", luid, code="404005")
    return project


def _parent(services: Services, call: Call, luid: str) -> str | None:
    if luid and projects.project(services.database, call.site.luid, luid) is None:
        raise not_found("Project", luid, code="404005")
    return luid or None


def _subtree(services: Services, project: Project) -> set[str]:
    inside = {project.luid}
    everything = projects.projects(services.database, project.site)
    while found := {p.luid for p in everything if p.parent in inside} - inside:
        inside |= found
    return inside


def _check_name_is_free(services: Services, project: Project) -> None:
    namesake = projects.namesake(
        services.database, project.site, parent=project.parent, name=project.name
    )
    if namesake is not None and namesake.luid != project.luid:
        raise refusal("409006", f"A project already exists with the name '{project.name}'")


def _check_may_manage(call: Call) -> None:
    if not call.user.is_admin:
        raise refusal("403004", "The user is not allowed to manage projects.")


def _content_permissions(request: XmlElement, default: str) -> str:
    value = request.get("contentPermissions", default)
    if value not in _PERMISSIONS:
        raise malformed(f"'{value}' is no way to manage the permissions of a project.")
    return value


ROUTES = (
    Route("GET", "sites/{site}/projects", query_projects),
    Route("POST", "sites/{site}/projects", create_project),
    Route("PUT", "sites/{site}/projects/{project}", update_project),
    Route("DELETE", "sites/{site}/projects/{project}", delete_project),
)
