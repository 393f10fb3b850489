"""Projects inside the project, and permissions."""

from uuid import uuid4

from tableau_sandbox_tests.contract.answer import Answer, attribute
from tableau_sandbox_tests.contract.files import rows_file
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.sources import (
    LIVE_MESSAGES,
    REFERENCE,
    SAMPLES,
    SCHEMA,
    TSC,
    fact,
)
from tableau_sandbox_tests.contract.workspace import ROWS, Published, Workspace

_CREATE = "POST sites/{site}/projects"
_CHANGE = "PUT sites/{site}/projects/{project}"
_PERMISSIONS = "sites/{site}/datasources/{datasource}/permissions"


@fact(_CREATE, REFERENCE)
def test_created_project(workspace: Workspace):
    """A project is created inside another one, with 201."""
    name = workspace.new_name()
    answer = workspace.ask("POST", "projects", workspace.project_request(name)).succeeds(201)
    project = answer.element("project")
    assert (project.get("name"), project.get("parentProjectId")) == (name, workspace.project)


@fact(_CREATE, LIVE_MESSAGES)
def test_taken_project_name(workspace: Workspace):
    """A name that another project has at this place is refused with 409006, in any case."""
    name = workspace.new_name()
    workspace.new_project(name)
    workspace.ask("POST", "projects", workspace.project_request(name.upper())).is_refused("409006")


@fact(_CHANGE, TSC)
def test_project_read_by_put(workspace: Workspace):
    """A change without attributes returns the project as it is."""
    path = f"projects/{workspace.project}?publishSamples=False"
    answer = workspace.ask("PUT", path, "<tsRequest><project/></tsRequest>").succeeds(200)
    assert attribute(answer.element("project"), "id") == workspace.project


@fact(_CHANGE, REFERENCE)
def test_described_project(workspace: Workspace):
    """A project is described, and keeps its name."""
    name = workspace.new_name()
    luid = workspace.new_project(name)
    body = '<tsRequest><project description="Seen"/></tsRequest>'
    project = workspace.ask("PUT", f"projects/{luid}", body).succeeds(200).element("project")
    assert (project.get("name"), project.get("description")) == (name, "Seen")


@fact("DELETE sites/{site}/projects/{project}", REFERENCE)
def test_deleted_project(workspace: Workspace):
    """A deletion is answered 204, and then the project is unknown."""
    luid = workspace.new_project()
    workspace.ask("DELETE", f"projects/{luid}").succeeds(204)
    workspace.ask("DELETE", f"projects/{luid}").is_refused("404005")


@fact("GET sites/{site}/projects/{project}/permissions", REFERENCE)
def test_permissions_of_a_project(session: Session):
    """The permissions of a project name it."""
    project = session.first("project")
    answer = session.ask("GET", f"projects/{project}/permissions").succeeds(200)
    assert attribute(answer.element("permissions/project"), "id") == project


@fact("GET sites/{site}/projects/{project}/default-permissions/datasources", REFERENCE)
def test_default_permissions_of_a_project(session: Session):
    """A project has default permissions for its data sources."""
    project = session.first("project")
    path = f"projects/{project}/default-permissions/datasources"
    session.ask("GET", path).succeeds(200).element("permissions")


@fact("GET " + _PERMISSIONS, REFERENCE)
def test_permissions_of_an_unknown_datasource(session: Session):
    """The permissions of a data source that does not exist are refused with 404004."""
    session.ask("GET", f"datasources/{uuid4()}/permissions").is_refused("404004")


@fact("GET " + _PERMISSIONS, REFERENCE)
def test_permissions_of_a_datasource(workspace: Workspace):
    """The permissions of a data source name it."""
    answer = workspace.ask("GET", f"{workspace.shared.path}/permissions").succeeds(200)
    assert attribute(answer.element("permissions/datasource"), "id") == workspace.shared.luid


def _rule(workspace: Workspace, capability: str) -> str:
    return (
        f'<tsRequest><permissions><granteeCapabilities><user id="{workspace.session.user}"/>'
        f'<capabilities><capability name="{capability}" mode="Allow"/></capabilities>'
        "</granteeCapabilities></permissions></tsRequest>"
    )


def _grant(workspace: Workspace, target: Published, capability: str) -> Answer:
    return workspace.ask("PUT", f"{target.path}/permissions", _rule(workspace, capability))


def _has(workspace: Workspace, answer: Answer, capability: str) -> bool:
    """Whether an answer lists a capability of the user; others may have it by other rules."""
    return any(
        (item.get("name"), item.get("mode")) == (capability, "Allow")
        for rule in answer.succeeds(200).elements("permissions/granteeCapabilities")
        if (user := rule.find("user")) is not None and user.get("id") == workspace.session.user
        for item in rule.findall("capabilities/capability")
    )


@fact("PUT " + _PERMISSIONS, REFERENCE)
def test_granted_capability(workspace: Workspace):
    """A capability is granted to a user, and listed from then on."""
    target = workspace.published()
    answer = _grant(workspace, target, "Read")
    assert _has(workspace, answer, "Read"), answer
    listed = workspace.ask("GET", f"{target.path}/permissions")
    assert _has(workspace, listed, "Read"), listed


@fact("PUT " + _PERMISSIONS, SCHEMA)
def test_capability_of_the_data_service(workspace: Workspace):
    """VizqlDataApiAccess is a capability of data sources."""
    workspace.session.needs_version("3.25")
    _grant(workspace, workspace.published(), "VizqlDataApiAccess").succeeds(200)


@fact("PUT " + _PERMISSIONS, REFERENCE)
def test_unknown_capability(workspace: Workspace):
    """A capability that does not exist is refused with 400000 or 400009."""
    _grant(workspace, workspace.shared, "NoSuchCapability").is_refused("400000", "400009")


@fact("PUT " + _PERMISSIONS, REFERENCE)
def test_permissions_of_something_else(workspace: Workspace):
    """Permissions whose request names a workbook or another data source are refused."""
    for named, codes in (("workbook", ["400000"]), ("datasource", ["400000", "404009"])):
        body = f'<tsRequest><permissions><{named} id="{uuid4()}"/></permissions></tsRequest>'
        workspace.ask("PUT", f"{workspace.shared.path}/permissions", body).is_refused(*codes)


@fact("DELETE " + _PERMISSIONS + "/{grantees}/{grantee}/{capability}/{mode}", REFERENCE)
def test_revoked_capability(workspace: Workspace):
    """A capability is revoked with 204."""
    target = workspace.published()
    _grant(workspace, target, "Read").succeeds(200)
    path = f"{target.path}/permissions/users/{workspace.session.user}/Read/Allow"
    workspace.ask("DELETE", path).succeeds(204)
    listed = workspace.ask("GET", f"{target.path}/permissions")
    assert not _has(workspace, listed, "Read"), listed


_DEFAULTS = "sites/{site}/projects/{project}/default-permissions"


def _has_defaults(session: Session, kind: str) -> None:
    project = session.first("project")
    answer = session.ask("GET", f"projects/{project}/default-permissions/{kind}").succeeds(200)
    assert attribute(answer.element("permissions/project"), "id") == project


@fact(f"GET {_DEFAULTS}/workbooks", REFERENCE)
def test_default_permissions_for_workbooks(session: Session):
    """A project has default permissions for its workbooks."""
    _has_defaults(session, "workbooks")


@fact(f"GET {_DEFAULTS}/flows", REFERENCE)
def test_default_permissions_for_flows(session: Session):
    """A project has default permissions for its flows."""
    _has_defaults(session, "flows")


@fact(f"GET {_DEFAULTS}/lenses", TSC)
def test_default_permissions_for_lenses(session: Session):
    """A project has default permissions for its lenses."""
    _has_defaults(session, "lenses")


@fact(f"PUT {_DEFAULTS}/datasources", REFERENCE)
def test_default_permission_of_a_new_datasource(workspace: Workspace):
    """A data source begins with the default permissions of its project."""
    project, name = workspace.new_project(), workspace.new_name()
    path = f"projects/{project}/default-permissions/datasources"
    workspace.ask("PUT", path, _rule(workspace, "ExportXml")).succeeds(200)
    answer = workspace.send_parts(
        "POST",
        "datasources",
        ("request_payload", "", workspace.request(name, project=project)),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    ).succeeds(201)
    luid = attribute(answer.element("datasource"), "id")
    listed = workspace.ask("GET", f"datasources/{luid}/permissions")
    assert _has(workspace, listed, "ExportXml"), listed


@fact("PUT " + _PERMISSIONS, REFERENCE)
def test_permissions_in_a_locked_project(workspace: Workspace):
    """Where a project locks the permissions, those of a data source cannot be changed: 403004."""
    project, name = workspace.new_project(), workspace.new_name()
    body = '<tsRequest><project contentPermissions="LockedToProject"/></tsRequest>'
    changed = workspace.ask("PUT", f"projects/{project}", body).succeeds(200).element("project")
    assert attribute(changed, "contentPermissions") == "LockedToProject"
    answer = workspace.send_parts(
        "POST",
        "datasources",
        ("request_payload", "", workspace.request(name, project=project)),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    ).succeeds(201)
    target = Published(attribute(answer.element("datasource"), "id"), name)
    _grant(workspace, target, "Read").is_refused("403004")


@fact(_CREATE, SAMPLES)
def test_same_name_elsewhere(workspace: Workspace):
    """Projects inside different projects may have the same name."""
    inner = workspace.new_project()
    name = workspace.new_name()
    workspace.new_project(name)
    body = f'<tsRequest><project name="{name}" parentProjectId="{inner}"/></tsRequest>'
    workspace.ask("POST", "projects", body).succeeds(201)


@fact(_CREATE, TSC)
def test_parameter_given_twice(workspace: Workspace):
    """A parameter that is given twice is no error: clients send publishSamples so."""
    body = workspace.project_request(workspace.new_name())
    path = "projects?publishSamples=False&publishSamples=False"
    workspace.ask("POST", path, body).succeeds(201)
