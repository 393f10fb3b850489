"""Other sessions: connected apps with scopes, users with fewer rights, and another site."""

import uuid
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import jwt
import pytest

from tableau_sandbox_tests.contract.files import rows_file
from tableau_sandbox_tests.contract.session import (
    OLDEST_VERSION,
    OtherSession,
    Session,
    Steps,
    sign_in_request,
)
from tableau_sandbox_tests.contract.sources import Source, asks, fact
from tableau_sandbox_tests.contract.vds import call
from tableau_sandbox_tests.contract.workspace import ROWS, Published, Workspace

_SIGN_IN = "POST auth/signin"
_PUBLISH = "POST sites/{site}/datasources"
_DATASOURCES = "GET sites/{site}/datasources"
_DATASOURCE = "sites/{site}/datasources/{datasource}"
_METADATA = "POST vizql-data-service/read-metadata"
_READ = "tableau:content:read"
_CLEAR = {"action": "delete", "target-table": "Extract", "condition": True}
_NO_LUID = {"datasource": {"datasourceLuid": str(uuid.UUID(int=0))}}


def app_request(session: Session, *scopes: str, lasts: float = 5) -> str:
    """Return the sign-in request of a connected app, whose token lasts `lasts` minutes."""
    parts = [f"TABLEAU_CONNECTED_APP_{each}" for each in ("CLIENT_ID", "SECRET_ID", "SECRET_VALUE")]
    names = *parts, "TABLEAU_USERNAME"
    client_id, secret_id, secret_value, user = session.variables("connected app", *names)
    token = jwt.encode(
        {
            "iss": client_id,
            "sub": user,
            "aud": "tableau",
            "jti": str(uuid.uuid4()),
            "exp": datetime.now(UTC) + timedelta(minutes=lasts),
            "scp": scopes,
        },
        secret_value,
        algorithm="HS256",
        headers={"kid": secret_id, "iss": client_id},
    )
    return sign_in_request(session.content_url, jwt=token, isUat="false")


@fact(_SIGN_IN, Source.TSC)
def test_app_signs_in(session: Session):
    """A connected app signs a user in with a token, also on the path of version 2.4."""
    request = app_request(session, _READ)
    answer = session.call("POST", "auth/signin", request, version=OLDEST_VERSION).succeeds()
    assert answer["credentials@token"]
    assert answer["credentials/site@id"] == session.site


@fact(
    _SIGN_IN,
    Source.SCOPES,
    token_of_an_app_for_hours=("for more than ten minutes", 120),
    token_of_an_app_that_has_expired=("no longer", -5),
)
def test_token_of_an_app(session: Session, *, how_long: str, minutes: float):
    """A token of an app that is valid {how_long} is refused with 401001."""
    request = app_request(session, _READ, lasts=minutes)
    session.call("POST", "auth/signin", request).is_refused("401001")


@fact(_SIGN_IN, Source.SCOPES)
def test_token_of_an_app_used_twice(session: Session):
    """A token signs in once; the second time, it is refused with 401001."""
    request = app_request(session, _READ)
    session.call("POST", "auth/signin", request).succeeds()
    session.call("POST", "auth/signin", request).is_refused("401001")


@fact(_DATASOURCES, Source.SCOPES)
def test_made_up_scope(session: Session):
    """A scope that does not exist allows nothing: the sign-in or all calls are refused."""
    answer = session.call("POST", "auth/signin", app_request(session, "tableau:nothing:read"))
    if answer.status == 200:
        answer = OtherSession(session, answer).send("GET datasources")
    answer.is_refused("401001 or 401002")


@fact(
    _DATASOURCES,
    Source.SCOPES,
    scope_to_read_content=(
        "The scope tableau:content:read is enough to list data sources and projects",
        _READ,
        [("GET datasources", "200"), ("GET projects", "200")],
    ),
)
@fact(
    "GET sites/{site}/users/{user}",
    Source.SCOPES,
    call_without_its_scope=(
        "A call whose scope the token lacks is refused with 401002",
        _READ,
        [("GET users/{user}", "401002")],
    ),
)
@fact(
    "GET sites/{site}/jobs/{job}",
    Source.SCOPES,
    wildcard_of_a_resource=(
        "The wildcard tableau:jobs:* stands for all actions on jobs, and for no other resource",
        "tableau:jobs:*",
        [("GET jobs/{nothing}", "404018"), ("GET datasources", "401002")],
    ),
)
def test_scopes(session: Session, *, claim: str, scope: str, requests: Steps):
    """{claim}."""
    with session.other(app_request(session, scope)) as other:
        other.converse(*requests)


@fact(_METADATA, Source.MCP)
def test_scope_of_the_data_service(session: Session):
    """VizQL Data Service needs the scope tableau:viz_data_service:read."""
    with session.other(app_request(session, "tableau:viz_data_service:read")) as other:
        call(session, "read-metadata", _NO_LUID, token=other.token).is_refused("404937")
    with session.other(app_request(session, _READ)) as other:
        call(session, "read-metadata", _NO_LUID, token=other.token).succeeds(401, 403)


@fact(_PUBLISH, Source.SCOPES)
def test_publish_without_its_scope(workspace: Workspace):
    """A session that may only read does not publish: 401002."""
    with workspace.session.other(app_request(workspace.session, _READ)) as other:
        workspace.publish(by=other).is_refused("401002")


@fact(f"DELETE {_DATASOURCE}", Source.SCOPES)
def test_delete_without_its_scope(workspace: Workspace):
    """A session that may create and update data sources does not delete them: 401002."""
    scopes = (f"tableau:datasources:{action}" for action in ("create", "update"))
    with workspace.session.other(app_request(workspace.session, *scopes)) as other:
        other.ask("DELETE", workspace.published().path).is_refused("401002")


def _user(session: Session, kind: str, *roles: str) -> Generator[OtherSession, None, None]:
    names = (f"TABLEAU_{kind.upper()}_TOKEN_{part}" for part in ("NAME", "VALUE"))
    name, value = session.variables(kind, *names)
    token = {"personalAccessTokenName": name, "personalAccessTokenSecret": value}
    request = sign_in_request(session.content_url, **token)
    reason = f"the token of the {kind} does not sign in"
    with session.other(request, unless_refused=reason) as other:
        if other.send("GET users/{user}").succeeds()["user@siteRole"] not in roles:
            pytest.skip(f"the other user is no {kind}")
        yield other


@pytest.fixture(scope="module")
def viewer(session: Session) -> Generator[OtherSession, None, None]:
    """Yield the session of a Viewer."""
    yield from _user(session, "Viewer", "Viewer")


@pytest.fixture(scope="module")
def creator(session: Session) -> Generator[OtherSession, None, None]:
    """Yield the session of a user who may publish, but leads neither the project nor the site."""
    yield from _user(session, "Creator", "Creator", "ExplorerCanPublish")


@pytest.fixture(scope="module")
def closed(workspace: Workspace) -> tuple[str, Published]:
    """Return a new project without permission rules, and a data source in the project."""
    project = workspace.new_project()
    _revoke_all(workspace, f"projects/{project}/permissions")
    target = workspace.published(project=project)
    _revoke_all(workspace, f"{target.path}/permissions")
    return project, target


def _revoke_all(workspace: Workspace, path: str) -> None:
    answer = workspace.ask("GET", path).succeeds()
    for rule in answer.elements("permissions/granteeCapabilities"):
        grantee = next(each for each in rule if each.tag in ("user", "group"))
        for item in rule.findall("capabilities/capability"):
            named = f"{grantee.tag}s/{grantee.get('id')}/{item.get('name')}/{item.get('mode')}"
            workspace.ask("DELETE", f"{path}/{named}").succeeds(204)


@asks(
    Source.REFERENCE,
    """
    viewer-looks-up-another-user: GET users/{other} -> 403004
    viewer-lists-users: GET users -> 403004
    viewer-lists-jobs: GET jobs -> 403004
    viewer-uploads: POST fileUploads -> 403004
    """,
)
def test_viewer(session: Session, viewer: OtherSession, steps: Steps):
    """{steps}."""
    viewer.converse(*steps, other=session.user)


@fact(_PUBLISH, Source.REFERENCE)
def test_viewer_publishes(workspace: Workspace, viewer: OtherSession):
    """A Viewer does not publish: 403004 or 403007."""
    workspace.publish(by=viewer).is_refused("403004 or 403007")


@asks(
    Source.REFERENCE,
    """
    viewer-downloads: GET {path}/content -> 403004
    viewer-deletes: DELETE {path} -> 403004
    """,
)
def test_viewer_of_data(workspace: Workspace, viewer: OtherSession, steps: Steps):
    """{steps}."""
    viewer.converse(*steps, path=workspace.published().path)


@fact("POST vizql-data-service/query-datasource", Source.VDS_HELP)
def test_query_without_api_access(workspace: Workspace, viewer: OtherSession):
    """A user without API Access may not query: 403800, or 404937 for an invisible data source."""
    fields = [{"fieldCaption": "n", "calculation": "COUNT([name])"}]
    body = {"datasource": {"datasourceLuid": workspace.shared.luid}, "query": {"fields": fields}}
    answer = call(workspace.session, "query-datasource", body, token=viewer.token)
    answer.is_refused("403800 or 404937")


@fact("GET sites/{site}/jobs/{job}", Source.REFERENCE)
def test_own_job_of_a_creator(workspace: Workspace, creator: OtherSession):
    """Only administrators may ask for jobs: a Creator's own job is refused with 403004."""
    answer = workspace.publish(query="asJob=true", by=creator).succeeds(202)
    job = answer["job@id"]
    try:
        creator.send(f"GET jobs/{job}").is_refused("403004")
        creator.send(f"PUT jobs/{job}").is_refused("403004")
    finally:
        workspace.wait(job)


@fact("GET sites/{site}/jobs/{job}", Source.REFERENCE)
def test_job_of_another_user(workspace: Workspace, creator: OtherSession):
    """A Creator may not read the job of another user: 403004."""
    job = workspace.finished(workspace.update(workspace.published(), [_CLEAR]))["job@id"]
    creator.send(f"GET jobs/{job}").is_refused("403004")
    creator.send(f"PUT jobs/{job}").is_refused("403004")


@fact(_PUBLISH, Source.REFERENCE)
def test_publish_into_a_closed_project(
    workspace: Workspace, creator: OtherSession, closed: tuple[str, Published]
):
    """A Creator may not publish into a project that is closed to them: 403004 or 403007."""
    project, target = closed
    for name, query in ((workspace.new_name(), ""), (target.name, "overwrite=true")):
        answer = workspace.publish(name, query=query, project=project, by=creator)
        answer.is_refused("403004 or 403007")


@asks(
    Source.REFERENCE,
    """
    datasource-that-is-closed: GET {path} -> 403004 or 404004
    taking-over-a-datasource: PUT {path} <datasource><owner id='{user}'/></datasource>
        -> 403004 or 403027 or 403032
    permissions-read-by-others: GET {path}/permissions -> 403004
    list-without-what-is-closed: GET datasources?filter=name:eq:{name}
        -> pagination@totalAvailable=0
    content-of-what-is-closed: GET {path}/content -> 403004
    connections-of-what-is-closed: GET {path}/connections -> 403004 or 404011
    revisions-of-what-is-closed: GET {path}/revisions -> 403004
    """,
)
def test_creator(creator: OtherSession, closed: tuple[str, Published], steps: Steps):
    """{steps}."""
    creator.converse(*steps, path=closed[1].path, name=closed[1].name)


@fact("GET sites/{site}/projects", Source.REFERENCE)
def test_list_without_closed_projects(creator: OtherSession, closed: tuple[str, Published]):
    """A project that a user may not see is missing in lists."""
    answer = creator.send("GET projects?pageSize=1000").succeeds()
    assert closed[0] not in answer.all("projects/project@id")


def _rule(*capabilities: str, mode: str = "Allow") -> str:
    """Return the element that allows or denies the other user some capabilities."""
    named = "".join(f"<capability name='{each}' mode='{mode}'/>" for each in capabilities)
    rule = f"<user id='{{they}}'/><capabilities>{named}</capabilities>"
    return f"<permissions><granteeCapabilities>{rule}</granteeCapabilities></permissions>"


@asks(
    Source.REFERENCE,
    """
    right-to-download: they GET {path}/content -> 403004
    ; PUT {path}/permissions $download
    ; they GET {path}/content
    ; DELETE {path}/permissions/users/{they}/ExportXml/Allow -> 204
    ; they GET {path}/content -> 403004
    denied-before: PUT {path}/permissions $deny
    ; PUT {path}/permissions $read
    ; they GET {path} -> 403004
    right-to-write: they PUT {path} $describe -> 403032
    ; PUT {path}/permissions $write
    ; they PUT {path} $describe
    ; they PUT {path} $certify -> 403032
    ; they PUT {path}/tags <tags><tag label='a'/></tags>
    ; they DELETE {path} -> 403004
    limits-of-owners: they PUT {theirs} $describe
    ; they PUT {theirs} $certify -> 403032
    ; they PUT {theirs} <datasource><owner id='{user}'/></datasource> -> 403027
    ; they PUT {theirs} <datasource><project id='{closed}'/></datasource> -> 403030
    given-to-another-user: PUT {path} <datasource><owner id='{they}'/></datasource>
        -> datasource/owner@id={they}
    moved-out-of-a-lock: PUT {path} $into
    ; PUT $defaults $download
    ; PUT projects/{folder} <project contentPermissions='LockedToProject'/>
    ; PUT {path} <datasource><project id='{project}'/></datasource>
    ; they GET {path}/content
    locked-project: PUT {path} $into
    ; PUT $defaults $download
    ; they GET {path}/content -> 403004
    ; PUT projects/{folder} <project contentPermissions='LockedToProjectWithoutNested'/>
    ; they GET {path}/content
    ; PUT {path}/permissions $write -> 403004
    ; GET {path}/permissions -> permissions/parent@id={folder}
    ; PUT projects/{folder} <project contentPermissions='ManagedByOwner'/>
    ; DELETE $defaults/users/{they}/ExportXml/Allow -> 204
    ; they GET {path}/content
    change-of-a-closed-project: they PUT projects/{closed} <project/> -> 403004
    project-leader: PUT {path} $into
    ; they PUT {path} $certify -> 403032
    ; they POST projects <project name='{name}' parentProjectId='{folder}'/> -> 403004
    ; PUT projects/{folder}/permissions $leader
    ; they POST projects <project name='{name}' parentProjectId='{folder}'/>
        -> 201 project/owner@id={they}
    ; they PUT {path} $certify
    ; they GET {path}/content
    ; they GET {path}/permissions -> permissions/datasource@id
    """,
    download=_rule("ExportXml"),
    deny=_rule("Read", mode="Deny"),
    read=_rule("Read"),
    describe="<datasource description='Seen'/>",
    write=_rule("Write"),
    certify="<datasource isCertified='true'/>",
    into="<datasource><project id='{folder}'/></datasource>",
    defaults="projects/{folder}/default-permissions/datasources",
    leader=_rule("ProjectLeader"),
)
def test_rights(
    workspace: Workspace, creator: OtherSession, closed: tuple[str, Published], steps: Steps
):
    """{steps}."""
    theirs = workspace.publish(workspace.new_name(), by=creator).succeeds(201)
    values = {
        "path": workspace.published().path,
        "theirs": f"datasources/{theirs['datasource@id']}",
        "folder": workspace.new_project(),
        "name": workspace.new_name(),
        "project": workspace.project,
        "closed": closed[0],
        "they": creator.user,
        "user": workspace.session.user,
    }
    for request, expected in steps:
        asking = creator if request.startswith("they ") else workspace
        asking.converse((request.removeprefix("they "), expected), **values)


@fact(_PUBLISH, Source.REFERENCE)
def test_overwrite_of_another_users_data(workspace: Workspace, creator: OtherSession):
    """A user who may write a data source can overwrite it; the owner stays."""
    target = workspace.published()
    publish = partial(workspace.publish, target.name, query="overwrite=true", by=creator)
    publish().is_refused("403004 or 403007")
    workspace.send(f"PUT {target.path}/permissions {_rule('Write')}", they=creator.user).succeeds()
    assert publish().succeeds(201)["datasource/owner@id"] == workspace.session.user


@fact("PUT sites/{site}/projects/{project}/default-permissions/datasources", Source.REFERENCE)
def test_default_permissions_of_an_inner_project(workspace: Workspace, creator: OtherSession):
    """A new project copies the rules of its parent project, and then has its own rules."""
    outer = workspace.new_project()
    path, element = f"projects/{outer}/default-permissions/datasources", _rule("ExportXml")
    workspace.send(f"PUT {path} {element}", they=creator.user).succeeds()
    request = f"POST projects <project name='{workspace.new_name()}' parentProjectId='{outer}'/>"
    inner = workspace.send(request).succeeds(201)["project@id"]
    workspace.send(f"DELETE {path}/users/{creator.user}/ExportXml/Allow").succeeds(204)
    for project, status in ((outer, 403), (inner, 200)):
        target = workspace.published(project=project)
        assert creator.send(f"GET {target.path}/content").status == status


@fact(f"PATCH {_DATASOURCE}/data", Source.UNSTATED)
def test_update_of_another_users_data(
    workspace: Workspace, creator: OtherSession, closed: tuple[str, Published]
):
    """A Creator who may not write does not update data: 403004."""
    workspace.update(closed[1], [_CLEAR], by=creator).is_refused("403004")
    assert workspace.rows(closed[1]) == [*ROWS]


@fact(f"PATCH {_DATASOURCE}/data", Source.REFERENCE)
def test_update_by_a_reader(workspace: Workspace, creator: OtherSession):
    """A user who may read but not write may not update data: 403032."""
    target = workspace.published()
    workspace.send(f"PUT {target.path}/permissions {_rule('Read')}", they=creator.user).succeeds()
    workspace.update(target, [_CLEAR], by=creator).is_refused("403032")
    assert workspace.rows(target) == [*ROWS]


@fact(f"PATCH {_DATASOURCE}/data", Source.REFERENCE)
def test_update_by_a_writer(workspace: Workspace, creator: OtherSession):
    """A user who may write but is not the owner may not update data: 403004."""
    target = workspace.published()
    workspace.send(f"PUT {target.path}/permissions {_rule('Write')}", they=creator.user).succeeds()
    workspace.update(target, [_CLEAR], by=creator).is_refused("403004")


@fact(f"PATCH {_DATASOURCE}/data", Source.REFERENCE)
def test_update_by_the_owner(workspace: Workspace, creator: OtherSession):
    """A Creator updates the data of their own data source."""
    name = workspace.new_name()
    answer = workspace.publish(name, by=creator).succeeds(201)
    target = Published(answer["datasource@id"], name)
    workspace.finished(workspace.update(target, [_CLEAR], by=creator))


@fact(_PUBLISH, Source.UNSTATED)
def test_upload_of_another_user(workspace: Workspace, creator: OtherSession):
    """Only the user who began an upload can use it: 404015."""
    upload = workspace.upload(rows_file(*ROWS))
    workspace.publish(upload=upload, by=creator).is_refused("404015")


@contextmanager
def _elsewhere(session: Session) -> Generator[OtherSession]:
    """Yield a session of the same user on another site; the session on this site may end."""
    (site,) = session.variables("other site", "TABLEAU_OTHER_SITE")
    request = sign_in_request(site, **session.own)
    with session.sessions_of_its_own(), session.other(request) as other:
        yield other


@fact("GET sites/{site}", Source.UNSTATED, another_site=("The record of another site", ""))
@fact(
    _DATASOURCES,
    Source.UNSTATED,
    session_of_another_site=("A path of another site", "/datasources"),
)
def test_path_of_another_site(session: Session, *, what: str, path: str):
    """{what} than the session's is refused with 403004."""
    with _elsewhere(session) as other:
        other.ask("GET", f"/sites/{session.site}{path}").is_refused("403004")


@fact("GET sites/{site}/projects", Source.REFERENCE)
def test_projects_of_each_site(session: Session):
    """Each site has a project "Default" of its own."""
    request = "GET projects?filter=name:eq:Default,topLevelProject:eq:true"
    here = session.send(request).succeeds()["projects/project@id"]
    with _elsewhere(session) as other:
        assert other.send(request).succeeds()["projects/project@id"] != here


@fact(f"GET {_DATASOURCE}", Source.REFERENCE)
def test_datasource_of_another_site(workspace: Workspace):
    """A data source of another site is unknown: 404004."""
    path = workspace.shared.path
    with _elsewhere(workspace.session) as other:
        other.ask("GET", path).is_refused("404004")


@fact(_METADATA, Source.MCP)
def test_service_of_another_site(workspace: Workspace):
    """VizQL Data Service knows the data sources of the session's site only: 404937."""
    body = {"datasource": {"datasourceLuid": workspace.shared.luid}}
    with _elsewhere(workspace.session) as other:
        answer = call(workspace.session, "read-metadata", body, token=other.token)
        answer.is_refused("404937")
