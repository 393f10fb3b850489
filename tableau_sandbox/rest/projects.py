from dataclasses import replace
from xml.etree.ElementTree import Element

from starlette.responses import Response

from tableau_sandbox import access
from tableau_sandbox.errors import malformed, refusal
from tableau_sandbox.identity import new_luid
from tableau_sandbox.rest import lists
from tableau_sandbox.rest.answers import Reply, project_element
from tableau_sandbox.rest.requests import Call, name_attribute, parse_request
from tableau_sandbox.rest.router import Route
from tableau_sandbox.services import Services
from tableau_sandbox.store.accounts import default_project_luid
from tableau_sandbox.store.records import Datasource, Project, User

_PERMISSIONS = (access.MANAGED_BY_OWNER, access.LOCKED, access.LOCKED_WITHOUT_NESTED)
_FIELDS: dict[str, lists.Field[Project]] = {
    "name": lists.text_field(lambda project: project.name, any_case=True),
    "parentProjectId": lists.text_field(lambda project: project.parent),
    "topLevelProject": lists.flag_field(lambda project: project.parent is None),
    "ownerName": lists.text_field(lambda project: project.owner_name),
    "createdAt": lists.time_field(lambda project: project.created_at),
    "updatedAt": lists.time_field(lambda project: project.updated_at),
}


def query_projects(services: Services, call: Call) -> Reply:
    """List the projects of a site."""
    decision = access.access_to(services.database, call.site.luid)
    until, default = lists.listed_since(services), default_project_luid(call.site.luid)
    seen = [
        each
        for each in decision.projects.values()
        # Lists always show the default project, because it was created with the site.
        if (each.created_at <= until or each.luid == default)
        and decision.may(call.user, access.READ, each)
    ]
    return lists.list_page(seen, call.query, name="projects", write=project_element, fields=_FIELDS)


def create_project(services: Services, call: Call) -> Reply:
    """Create a project at the top level or inside another project."""
    request = parse_request(call.body, "project")
    with services.database.transaction():
        parent = _parent(services, call, request.get("parentProjectId", ""))
        project = Project(
            luid=new_luid(),
            site=call.site.luid,
            parent=parent,
            owner=call.user.luid,
            name=name_attribute(request),
            description=request.get("description", ""),
            content_permissions=_content_permissions(request, access.MANAGED_BY_OWNER),
            created_at=services.now(),
            updated_at=services.now(),
        )
        _check_name_is_free(services, project)
        services.database.save("project", vars(project))
        # A new project starts with its parent's rules or, at the top level, the default project's
        # rules.
        template = parent or default_project_luid(call.site.luid)
        access.give_project_rules(services.database, project, template=template)
        return _reply(services, project.luid, status=201)


def update_project(services: Services, call: Call) -> Reply:
    """Change the attributes in the request. An empty request only returns the project."""
    request = parse_request(call.body, "project")
    with services.database.transaction():
        project = find_project(services, call)
        changed = _changed(services, call, project=project, request=request)
        if changed != project:
            _check_may_change(services, call, old=project, changed=changed)
            _check_name_is_free(services, changed)
            changed = replace(changed, updated_at=services.now())
            if _place(changed) != _place(project):
                access.keep_rules(services.database, _content(services, project))
            services.database.save("project", vars(changed))
        return _reply(services, project.luid, status=200)


def delete_project(services: Services, call: Call) -> Response:
    """Delete a project and its content."""
    project = find_project(services, call)
    if project.luid == default_project_luid(call.site.luid):
        raise refusal("403003", "The default project cannot be deleted.")
    _check_leads(services, call, project if project.parent else None)
    services.database.delete("project", luid=project.luid)
    services.sweep_content()
    return Response(status_code=204)


def _reply(services: Services, luid: str, *, status: int) -> Reply:
    # Read the record again: the name of the owner and the counts come from other tables.
    (stored,) = services.database.all(Project, luid=luid)
    return Reply(status, project_element(stored))


def _changed(services: Services, call: Call, *, project: Project, request: Element) -> Project:
    is_default = project.luid == default_project_luid(call.site.luid)
    name = name_attribute(request) if "name" in request.attrib else project.name
    if is_default and name != project.name:
        raise refusal("403005", "The default project cannot be renamed.")
    parent = project.parent
    if "parentProjectId" in request.attrib:
        luid = request.attrib["parentProjectId"]
        # A user who leaves a project in its place needs no rights on its parent.
        parent = parent if luid == (parent or "") else _parent(services, call, luid)
        if parent is not None and parent in _subtree(services, project):
            raise malformed("A project cannot be moved into itself.")
    owner = project.owner
    owner_element = request.find("owner")
    if owner_element is not None:
        owner = owner_element.get("id", "")
        services.known(User, owner, code="404002")
    return replace(
        project,
        name=name,
        parent=parent,
        owner=owner,
        description=request.get("description", project.description),
        content_permissions=_content_permissions(request, project.content_permissions),
    )


def find_project(services: Services, call: Call) -> Project:
    """Return the project that the path names.

    Raises:
        RestError: 404005, the project does not exist; 403004, the user may not see it.
    """
    project = services.known(Project, call.path["project"], site=call.site.luid, code="404005")
    access.check_may(services.database, access.READ, user=call.user, thing=project, code="403004")
    return project


def _parent(services: Services, call: Call, luid: str) -> str | None:
    parent = None
    if luid:
        parent = services.known(Project, luid, site=call.site.luid, code="404005")
    _check_leads(services, call, parent)
    return luid or None


def _subtree(services: Services, project: Project) -> set[str]:
    inside = {project.luid}
    everything = services.database.all(Project, site=project.site)
    while found := {p.luid for p in everything if p.parent in inside} - inside:
        inside |= found
    return inside


def _check_name_is_free(services: Services, project: Project) -> None:
    same_name = services.database.named(
        Project, project.name, site=project.site, parent=project.parent
    )
    if same_name is not None and same_name.luid != project.luid:
        raise refusal("409006", f"A project already exists with the name '{project.name}'")


def _place(project: Project) -> tuple[str | None, str]:
    """Return the values that determine which rules count in a project."""
    return project.parent, project.content_permissions


def _content(services: Services, project: Project) -> list[Project | Datasource]:
    inside = _subtree(services, project)
    database, site = services.database, project.site
    return [
        *(each for each in database.all(Project, site=site) if each.luid in inside),
        *(each for each in database.all(Datasource, site=site) if each.project in inside),
    ]


def _check_may_change(services: Services, call: Call, *, old: Project, changed: Project) -> None:
    _check_leads(services, call, old)
    if changed.owner != old.owner and not (call.user.is_admin or old.owner == call.user.luid):
        raise refusal("403027", "The user is not allowed to change the owner of the project.")


def _check_leads(services: Services, call: Call, project: Project | None) -> None:
    """Check that the user leads the project or, at the top level (None), is an administrator."""
    if project is not None:
        access.check_may(
            services.database, access.PROJECT_LEADER, user=call.user, thing=project, code="403004"
        )
    elif not call.user.is_admin:
        raise refusal("403004", "Only administrators manage projects at the top level.")


def _content_permissions(request: Element, default: str) -> str:
    value = request.get("contentPermissions", default)
    if value not in _PERMISSIONS:
        raise malformed(f"'{value}' is not a mode for the permissions of a project.")
    return value


_PROJECTS, _PROJECT = "sites/{site}/projects", "sites/{site}/projects/{project}"
ROUTES = (
    Route("GET", _PROJECTS, query_projects, ("tableau:content:read",)),
    Route("POST", _PROJECTS, create_project, ("tableau:projects:create",)),
    Route("PUT", _PROJECT, update_project, ("tableau:projects:update",)),
    Route("DELETE", _PROJECT, delete_project, ("tableau:projects:delete",)),
)
