"""Projects inside the project, and permissions."""

from tableau_sandbox_tests.contract.answer import Answer
from tableau_sandbox_tests.contract.session import Session
from tableau_sandbox_tests.contract.sources import (
    LIVE_MESSAGES,
    REFERENCE,
    SAMPLES,
    SCHEMA,
    TSC,
    fact,
)
from tableau_sandbox_tests.contract.workspace import Workspace

_CREATE = "POST sites/{site}/projects"
_CHANGE = "PUT sites/{site}/projects/{project}"
_DEFAULTS = "sites/{site}/projects/{project}/default-permissions/datasources"
_PERMISSIONS = "sites/{site}/datasources/{datasource}/permissions"


@fact(_CREATE, REFERENCE)
def test_created_project(workspace: Workspace):
    """A project is created inside another one, with 201."""
    name = workspace.new_name()
    answer = workspace.send(f"POST projects {workspace.project_element(name)}").succeeds(201)
    found = answer["project@name"], answer["project@parentProjectId"]
    assert found == (name, workspace.project)


@fact(_CREATE, LIVE_MESSAGES)
def test_taken_project_name(workspace: Workspace):
    """A name that another project has at this place is refused with 409006, in any case."""
    name = workspace.new_name()
    workspace.new_project(name)
    element = workspace.project_element(name.upper())
    workspace.send(f"POST projects {element}").is_refused("409006")


@fact(_CREATE, SAMPLES)
def test_same_name_elsewhere(workspace: Workspace):
    """Projects inside different projects may have the same name."""
    inner, name = workspace.new_project(), workspace.new_name()
    workspace.new_project(name)
    element = f"<project name='{name}' parentProjectId='{inner}'/>"
    workspace.send(f"POST projects {element}").succeeds(201)


@fact(_CREATE, TSC)
def test_parameter_given_twice(workspace: Workspace):
    """A parameter that is given twice is no error: clients send publishSamples so."""
    path = "projects?publishSamples=False&publishSamples=False"
    element = workspace.project_element(workspace.new_name())
    workspace.send(f"POST {path} {element}").succeeds(201)


@fact(_CHANGE, TSC)
def test_project_read_by_put(workspace: Workspace):
    """A change without attributes returns the project as it is."""
    answer = workspace.send("PUT {project}?publishSamples=False <project/>").succeeds()
    assert answer["project@id"] == workspace.project


@fact(_CHANGE, REFERENCE)
def test_described_project(workspace: Workspace):
    """A project is described, and keeps its name."""
    name = workspace.new_name()
    luid = workspace.new_project(name)
    answer = workspace.send(f"PUT projects/{luid} <project description='Seen'/>").succeeds()
    assert (answer["project@name"], answer["project@description"]) == (name, "Seen")


@fact("DELETE sites/{site}/projects/{project}", REFERENCE)
def test_deleted_project(workspace: Workspace):
    """A deletion is answered 204, and then the project is unknown."""
    luid = workspace.new_project()
    workspace.send(f"DELETE projects/{luid}").succeeds(204)
    workspace.send(f"DELETE projects/{luid}").is_refused("404005")


@fact(
    "GET sites/{site}/projects/{project}/permissions",
    REFERENCE,
    permissions_of_a_project="The permissions of a project name it: permissions",
)
@fact(
    f"GET {_DEFAULTS}",
    REFERENCE,
    default_permissions_of_a_project="A project has default permissions for its data sources: "
    "default-permissions/datasources",
)
def test_permissions_of_a_project(session: Session, *, claim: str, path: str):
    """{claim}."""
    project = session.first("project")
    answer = session.send(f"GET projects/{project}/{path}").succeeds()
    assert answer["permissions/project@id"] == project


@fact(f"GET {_PERMISSIONS}", REFERENCE)
def test_permissions_of_a_datasource(workspace: Workspace):
    """The permissions of a data source name it."""
    answer = workspace.send("GET {shared}/permissions").succeeds()
    assert answer["permissions/datasource@id"] == workspace.shared.luid


def _grant(workspace: Workspace, path: str, capability: str) -> Answer:
    capabilities = f"<capabilities><capability name='{capability}' mode='Allow'/></capabilities>"
    rule = f"<granteeCapabilities><user id='{{user}}'/>{capabilities}</granteeCapabilities>"
    return workspace.send(f"PUT {path} <permissions>{rule}</permissions>")


def _has(workspace: Workspace, answer: Answer, capability: str) -> bool:
    """Whether an answer lists a capability of the user; others may have it by other rules."""
    return any(
        rule.find(f"capabilities/capability[@name='{capability}'][@mode='Allow']") is not None
        for rule in answer.succeeds().elements("permissions/granteeCapabilities")
        if rule.find(f"user[@id='{workspace.session.user}']") is not None
    )


@fact(f"PUT {_PERMISSIONS}", REFERENCE)
def test_granted_capability(workspace: Workspace):
    """A capability is granted to a user, and listed from then on."""
    path = f"{workspace.published().path}/permissions"
    assert _has(workspace, _grant(workspace, path, "Read"), "Read")
    assert _has(workspace, workspace.ask("GET", path), "Read")


@fact(f"PUT {_PERMISSIONS}", SCHEMA)
def test_capability_of_the_data_service(workspace: Workspace):
    """VizqlDataApiAccess is a capability of data sources."""
    workspace.session.needs_version("3.25")
    path = f"{workspace.published().path}/permissions"
    _grant(workspace, path, "VizqlDataApiAccess").succeeds()


@fact(f"DELETE {_PERMISSIONS}/{{grantees}}/{{grantee}}/{{capability}}/{{mode}}", REFERENCE)
def test_revoked_capability(workspace: Workspace):
    """A capability is revoked with 204."""
    path = f"{workspace.published().path}/permissions"
    _grant(workspace, path, "Read").succeeds()
    workspace.send(f"DELETE {path}/users/{{user}}/Read/Allow").succeeds(204)
    assert not _has(workspace, workspace.ask("GET", path), "Read")


@fact(f"PUT {_DEFAULTS}", REFERENCE)
def test_default_permission_of_a_new_datasource(workspace: Workspace):
    """A data source begins with the default permissions of its project."""
    project = workspace.new_project()
    path = f"projects/{project}/default-permissions/datasources"
    _grant(workspace, path, "ExportXml").succeeds()
    target = workspace.published(project=project)
    assert _has(workspace, workspace.ask("GET", f"{target.path}/permissions"), "ExportXml")


@fact(f"PUT {_PERMISSIONS}", REFERENCE)
def test_permissions_in_a_locked_project(workspace: Workspace):
    """Where a project locks the permissions, those of a data source cannot be changed: 403004."""
    project = workspace.new_project()
    change = "<project contentPermissions='LockedToProject'/>"
    answer = workspace.send(f"PUT projects/{project} {change}").succeeds()
    assert answer["project@contentPermissions"] == "LockedToProject"
    target = workspace.published(project=project)
    _grant(workspace, f"{target.path}/permissions", "Read").is_refused("403004")
