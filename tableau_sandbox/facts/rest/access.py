"""Projects inside the project, and permissions."""

from uuid import uuid4

from tableau_sandbox.facts.answer import Answer, attribute, expect, expect_that
from tableau_sandbox.facts.fact import reads, writes
from tableau_sandbox.facts.files import rows_file
from tableau_sandbox.facts.playground import ROWS, Playground, Published
from tableau_sandbox.facts.scene import Scene
from tableau_sandbox.facts.sources import (
    LIVE_MESSAGES,
    REFERENCE,
    SAMPLES,
    SCHEMA,
    TSC,
)

_CREATE = "POST sites/{site}/projects"
_CHANGE = "PUT sites/{site}/projects/{project}"
_PERMISSIONS = "sites/{site}/datasources/{datasource}/permissions"


@writes(_CREATE, REFERENCE)
def created_project(play: Playground) -> None:
    """A project is created inside another one, with 201."""
    name = play.new_name()
    answer = play.ask("POST", "projects", play.project_request(name)).succeeds(201)
    project = answer.element("project")
    expect((name, play.project), (project.get("name"), project.get("parentProjectId")))


@writes(_CREATE, LIVE_MESSAGES)
def taken_project_name(play: Playground) -> None:
    """A name that another project has at this place is refused with 409006, in any case."""
    name = play.new_name()
    play.new_project(name)
    play.ask("POST", "projects", play.project_request(name.upper())).is_refused("409006")


@writes(_CHANGE, TSC)
def project_read_by_put(play: Playground) -> None:
    """A change without attributes returns the project as it is."""
    path = f"projects/{play.project}?publishSamples=False"
    answer = play.ask("PUT", path, "<tsRequest><project/></tsRequest>").succeeds(200)
    expect(play.project, attribute(answer.element("project"), "id"))


@writes(_CHANGE, REFERENCE)
def described_project(play: Playground) -> None:
    """A project is described, and keeps its name."""
    name = play.new_name()
    luid = play.new_project(name)
    body = '<tsRequest><project description="Seen"/></tsRequest>'
    project = play.ask("PUT", f"projects/{luid}", body).succeeds(200).element("project")
    expect((name, "Seen"), (project.get("name"), project.get("description")))


@writes("DELETE sites/{site}/projects/{project}", REFERENCE)
def deleted_project(play: Playground) -> None:
    """A deletion is answered 204, and then the project is unknown."""
    luid = play.new_project()
    play.ask("DELETE", f"projects/{luid}").succeeds(204)
    play.ask("DELETE", f"projects/{luid}").is_refused("404005")


@reads("GET sites/{site}/projects/{project}/permissions", REFERENCE)
def permissions_of_a_project(scene: Scene) -> None:
    """The permissions of a project name it."""
    project = scene.first("project")
    answer = scene.ask("GET", f"projects/{project}/permissions").succeeds(200)
    expect(project, attribute(answer.element("permissions/project"), "id"))


@reads("GET sites/{site}/projects/{project}/default-permissions/datasources", REFERENCE)
def default_permissions_of_a_project(scene: Scene) -> None:
    """A project has default permissions for its data sources."""
    project = scene.first("project")
    path = f"projects/{project}/default-permissions/datasources"
    scene.ask("GET", path).succeeds(200).element("permissions")


@reads("GET " + _PERMISSIONS, REFERENCE)
def permissions_of_an_unknown_datasource(scene: Scene) -> None:
    """The permissions of a data source that does not exist are refused with 404004."""
    scene.ask("GET", f"datasources/{uuid4()}/permissions").is_refused("404004")


@writes("GET " + _PERMISSIONS, REFERENCE)
def permissions_of_a_datasource(play: Playground) -> None:
    """The permissions of a data source name it."""
    answer = play.ask("GET", f"{play.shared.path}/permissions").succeeds(200)
    expect(play.shared.luid, attribute(answer.element("permissions/datasource"), "id"))


def _rule(play: Playground, capability: str) -> str:
    return (
        f'<tsRequest><permissions><granteeCapabilities><user id="{play.scene.user}"/>'
        f'<capabilities><capability name="{capability}" mode="Allow"/></capabilities>'
        "</granteeCapabilities></permissions></tsRequest>"
    )


def _grant(play: Playground, target: Published, capability: str) -> Answer:
    return play.ask("PUT", f"{target.path}/permissions", _rule(play, capability))


def _has(play: Playground, answer: Answer, capability: str) -> bool:
    """Whether an answer lists a capability of the user; others may have it by other rules."""
    return any(
        (item.get("name"), item.get("mode")) == (capability, "Allow")
        for rule in answer.succeeds(200).elements("permissions/granteeCapabilities")
        if (user := rule.find("user")) is not None and user.get("id") == play.scene.user
        for item in rule.findall("capabilities/capability")
    )


@writes("PUT " + _PERMISSIONS, REFERENCE)
def granted_capability(play: Playground) -> None:
    """A capability is granted to a user, and listed from then on."""
    target = play.published()
    answer = _grant(play, target, "Read")
    expect_that(_has(play, answer, "Read"), "the capability Read", answer)
    listed = play.ask("GET", f"{target.path}/permissions")
    expect_that(_has(play, listed, "Read"), "the capability Read", listed)


@writes("PUT " + _PERMISSIONS, SCHEMA)
def capability_of_the_data_service(play: Playground) -> None:
    """VizqlDataApiAccess is a capability of data sources."""
    play.scene.needs_version("3.25")
    _grant(play, play.published(), "VizqlDataApiAccess").succeeds(200)


@writes("PUT " + _PERMISSIONS, REFERENCE)
def unknown_capability(play: Playground) -> None:
    """A capability that does not exist is refused with 400000 or 400009."""
    _grant(play, play.shared, "NoSuchCapability").is_refused("400000", "400009")


@writes("PUT " + _PERMISSIONS, REFERENCE)
def permissions_of_something_else(play: Playground) -> None:
    """Permissions whose request names a workbook or another data source are refused."""
    for named, codes in (("workbook", ["400000"]), ("datasource", ["400000", "404009"])):
        body = f'<tsRequest><permissions><{named} id="{uuid4()}"/></permissions></tsRequest>'
        play.ask("PUT", f"{play.shared.path}/permissions", body).is_refused(*codes)


@writes("DELETE " + _PERMISSIONS + "/{grantees}/{grantee}/{capability}/{mode}", REFERENCE)
def revoked_capability(play: Playground) -> None:
    """A capability is revoked with 204."""
    target = play.published()
    _grant(play, target, "Read").succeeds(200)
    path = f"{target.path}/permissions/users/{play.scene.user}/Read/Allow"
    play.ask("DELETE", path).succeeds(204)
    listed = play.ask("GET", f"{target.path}/permissions")
    expect_that(not _has(play, listed, "Read"), "no capability Read", listed)


_DEFAULTS = "sites/{site}/projects/{project}/default-permissions"


def _has_defaults(scene: Scene, kind: str) -> None:
    project = scene.first("project")
    answer = scene.ask("GET", f"projects/{project}/default-permissions/{kind}").succeeds(200)
    expect(project, attribute(answer.element("permissions/project"), "id"))


@reads(f"GET {_DEFAULTS}/workbooks", REFERENCE)
def default_permissions_for_workbooks(scene: Scene) -> None:
    """A project has default permissions for its workbooks."""
    _has_defaults(scene, "workbooks")


@reads(f"GET {_DEFAULTS}/flows", REFERENCE)
def default_permissions_for_flows(scene: Scene) -> None:
    """A project has default permissions for its flows."""
    _has_defaults(scene, "flows")


@reads(f"GET {_DEFAULTS}/lenses", TSC)
def default_permissions_for_lenses(scene: Scene) -> None:
    """A project has default permissions for its lenses."""
    _has_defaults(scene, "lenses")


@writes(f"PUT {_DEFAULTS}/datasources", REFERENCE)
def default_permission_of_a_new_datasource(play: Playground) -> None:
    """A data source begins with the default permissions of its project."""
    project, name = play.new_project(), play.new_name()
    path = f"projects/{project}/default-permissions/datasources"
    play.ask("PUT", path, _rule(play, "ExportXml")).succeeds(200)
    answer = play.send_parts(
        "POST",
        "datasources",
        ("request_payload", "", play.request(name, project=project)),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    ).succeeds(201)
    luid = attribute(answer.element("datasource"), "id")
    listed = play.ask("GET", f"datasources/{luid}/permissions")
    expect_that(_has(play, listed, "ExportXml"), "the capability ExportXml", listed)


@writes("PUT " + _PERMISSIONS, REFERENCE)
def permissions_in_a_locked_project(play: Playground) -> None:
    """Where a project locks the permissions, those of a data source cannot be changed: 403004."""
    project, name = play.new_project(), play.new_name()
    body = '<tsRequest><project contentPermissions="LockedToProject"/></tsRequest>'
    changed = play.ask("PUT", f"projects/{project}", body).succeeds(200).element("project")
    expect("LockedToProject", attribute(changed, "contentPermissions"))
    answer = play.send_parts(
        "POST",
        "datasources",
        ("request_payload", "", play.request(name, project=project)),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    ).succeeds(201)
    target = Published(attribute(answer.element("datasource"), "id"), name)
    _grant(play, target, "Read").is_refused("403004")


@writes(_CREATE, SAMPLES)
def same_name_elsewhere(play: Playground) -> None:
    """Projects inside different projects may have the same name."""
    inner = play.new_project()
    name = play.new_name()
    play.new_project(name)
    body = f'<tsRequest><project name="{name}" parentProjectId="{inner}"/></tsRequest>'
    play.ask("POST", "projects", body).succeeds(201)


@writes(_CREATE, TSC)
def parameter_given_twice(play: Playground) -> None:
    """A parameter that is given twice is no error: clients send publishSamples so."""
    body = play.project_request(play.new_name())
    path = "projects?publishSamples=False&publishSamples=False"
    play.ask("POST", path, body).succeeds(201)
