"""Other sessions: connected apps with scopes, users with fewer rights, and another site."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tableau_sandbox_tests.contract.answer import attribute
from tableau_sandbox_tests.contract.files import multipart, rows_file
from tableau_sandbox_tests.contract.session import (
    OLDEST_VERSION,
    App,
    Credentials,
    OtherSession,
    Session,
)
from tableau_sandbox_tests.contract.sources import (
    MCP,
    NOBODY,
    REFERENCE,
    SCOPES,
    TSC,
    VDS_HELP,
    fact,
)
from tableau_sandbox_tests.contract.vds import call, refused
from tableau_sandbox_tests.contract.workspace import ROWS, Published, Workspace

_SIGN_IN = "POST auth/signin"
_READ = "tableau:content:read"
_NO_LUID = {"datasource": {"datasourceLuid": "00000000-0000-0000-0000-000000000000"}}


def _app(session: Session) -> App:
    return session.others.app(session.credentials.site)


@fact(_SIGN_IN, TSC)
def test_app_signs_in(session: Session):
    """A connected app signs a user in with a token, also on the path of version 2.4."""
    body = _app(session).as_request(_READ)
    answer = session.call("POST", "auth/signin", body, version=OLDEST_VERSION).succeeds(200)
    attribute(answer.element("credentials"), "token")
    assert attribute(answer.element("credentials/site"), "id") == session.site


@fact(_SIGN_IN, SCOPES)
def test_token_of_an_app_for_hours(session: Session):
    """A token that is valid for more than ten minutes is refused with 401001."""
    body = _app(session).as_request(_READ, lasts=timedelta(hours=2))
    session.call("POST", "auth/signin", body).is_refused("401001")


@fact(_SIGN_IN, SCOPES)
def test_token_of_an_app_that_has_expired(session: Session):
    """A token that is no longer valid is refused with 401001."""
    body = _app(session).as_request(_READ, lasts=timedelta(minutes=-5))
    session.call("POST", "auth/signin", body).is_refused("401001")


@fact(_SIGN_IN, SCOPES)
def test_token_of_an_app_used_twice(session: Session):
    """A token signs in once; the second time, it is refused with 401001."""
    body = _app(session).as_request(_READ)
    session.call("POST", "auth/signin", body).succeeds(200)
    session.call("POST", "auth/signin", body).is_refused("401001")


@fact("GET sites/{site}/datasources", SCOPES)
def test_scope_to_read_content(session: Session):
    """The scope tableau:content:read is enough to list data sources and projects."""
    with session.other(_app(session).as_request(_READ)) as other:
        other.ask("GET", "datasources").succeeds(200)
        other.ask("GET", "projects").succeeds(200)


@fact("GET sites/{site}/users/{user}", SCOPES)
def test_call_without_its_scope(session: Session):
    """A call whose scope the token lacks is refused with 401002."""
    with session.other(_app(session).as_request(_READ)) as other:
        other.ask("GET", f"users/{other.user}").is_refused("401002")


@fact("GET sites/{site}/datasources", SCOPES)
def test_made_up_scope(session: Session):
    """A scope that does not exist lets a session do nothing: sign-in or calls are refused."""
    body = _app(session).as_request("tableau:nothing:read")
    answer = session.call("POST", "auth/signin", body)
    if answer.status == 200:
        token = attribute(answer.element("credentials"), "token")
        answer = session.call("GET", f"sites/{session.site}/datasources", token=token)
    answer.is_refused("401001", "401002")


@fact("GET sites/{site}/jobs/{job}", SCOPES)
def test_wildcard_of_a_resource(session: Session):
    """The wildcard tableau:jobs:* stands for all actions on jobs, and for no other resource."""
    with session.other(_app(session).as_request("tableau:jobs:*")) as other:
        other.ask("GET", f"jobs/{uuid4()}").is_refused("404018")
        other.ask("GET", "datasources").is_refused("401002")


@fact("POST vizql-data-service/read-metadata", MCP)
def test_scope_of_the_data_service(session: Session):
    """VizQL Data Service needs the scope tableau:viz_data_service:read."""
    app = _app(session)
    with session.other(app.as_request("tableau:viz_data_service:read")) as other:
        refused(call(session, "read-metadata", _NO_LUID, token=other.token), "404937")
    with session.other(app.as_request(_READ)) as other:
        answer = call(session, "read-metadata", _NO_LUID, token=other.token)
    assert answer.status in (401, 403), answer


@fact("POST sites/{site}/datasources", SCOPES)
def test_publish_without_its_scope(workspace: Workspace):
    """A session that may only read does not publish: 401002."""
    body, headers = multipart(
        ("request_payload", "", workspace.request(workspace.new_name())),
        ("tableau_datasource", "file.hyper", b""),
    )
    with workspace.session.other(_app(workspace.session).as_request(_READ)) as other:
        other.ask("POST", "datasources", body, headers=headers).is_refused("401002")


@fact("DELETE sites/{site}/datasources/{datasource}", SCOPES)
def test_delete_without_its_scope(workspace: Workspace):
    """A session that may create and update data sources does not delete them: 401002."""
    scopes = (f"tableau:datasources:{action}" for action in ("create", "update"))
    with workspace.session.other(_app(workspace.session).as_request(*scopes)) as other:
        other.ask("DELETE", workspace.published().path).is_refused("401002")


_PUBLISH = "POST sites/{site}/datasources"
_CLEAR = {"action": "delete", "target-table": "Extract", "condition": True}
_FORBIDDEN = ("403004", "403007")


@contextmanager
def _signed_in(session: Session, who: Credentials, *roles: str) -> Generator[OtherSession]:
    reason = "the token of the other user does not sign in"
    with session.other(who.as_request(), unless_refused=reason) as other:
        record = other.ask("GET", f"users/{other.user}").succeeds(200).element("user")
        if record.get("siteRole") not in roles:
            pytest.skip(f"the other user is no {roles[0]}")
        yield other


def _viewer(session: Session) -> Any:
    return _signed_in(session, session.others.viewer(session.credentials.site), "Viewer")


def _creator(session: Session) -> Any:
    who = session.others.creator(session.credentials.site)
    return _signed_in(session, who, "Creator", "ExplorerCanPublish")


def _publish(
    other: OtherSession, workspace: Workspace, name: str, *, project: str, query: str = ""
) -> Any:
    body, headers = multipart(
        ("request_payload", "", workspace.request(name, project=project)),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    )
    return other.ask("POST", f"datasources?{query}", body, headers=headers)


def _closed(workspace: Workspace) -> tuple[str, Published]:
    """Return a new project without rules for anybody, and a data source in it."""
    project, name = workspace.new_project(), workspace.new_name()
    _revoke_all(workspace, f"projects/{project}/permissions")
    parts = (
        ("request_payload", "", workspace.request(name, project=project)),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    )
    answer = workspace.send_parts("POST", "datasources", *parts).succeeds(201)
    target = Published(attribute(answer.element("datasource"), "id"), name)
    _revoke_all(workspace, f"{target.path}/permissions")
    return project, target


def _revoke_all(workspace: Workspace, path: str) -> None:
    for rule in (
        workspace.ask("GET", path).succeeds(200).elements("permissions/granteeCapabilities")
    ):
        grantee = next(each for each in rule if each.tag in ("user", "group"))
        for item in rule.findall("capabilities/capability"):
            capability = f"{attribute(item, 'name')}/{attribute(item, 'mode')}"
            named = f"{grantee.tag}s/{attribute(grantee, 'id')}/{capability}"
            workspace.ask("DELETE", f"{path}/{named}").succeeds(204)


@fact("GET sites/{site}/users/{user}", REFERENCE)
def test_viewer_looks_up_another_user(session: Session):
    """Whoever is no administrator is refused the record of another user with 403004."""
    with _viewer(session) as other:
        other.ask("GET", f"users/{session.user}").is_refused("403004")


@fact("GET sites/{site}/users", REFERENCE)
def test_viewer_lists_users(session: Session):
    """Whoever is no administrator is refused the list of users with 403004."""
    with _viewer(session) as other:
        other.ask("GET", "users").is_refused("403004")


@fact("GET sites/{site}/jobs", REFERENCE)
def test_viewer_lists_jobs(session: Session):
    """Whoever is no administrator is refused the list of jobs with 403004."""
    with _viewer(session) as other:
        other.ask("GET", "jobs").is_refused("403004")


@fact("POST sites/{site}/fileUploads", REFERENCE)
def test_viewer_uploads(session: Session):
    """A Viewer does not upload: 403004."""
    with _viewer(session) as other:
        other.ask("POST", "fileUploads").is_refused("403004")


@fact(_PUBLISH, REFERENCE)
def test_viewer_publishes(workspace: Workspace):
    """A Viewer does not publish: 403004 or 403007."""
    with _viewer(workspace.session) as other:
        answer = _publish(other, workspace, workspace.new_name(), project=workspace.project)
        answer.is_refused(*_FORBIDDEN)


@fact("GET sites/{site}/datasources/{datasource}/content", REFERENCE)
def test_viewer_downloads(workspace: Workspace):
    """A Viewer does not download data sources: 403004."""
    with _viewer(workspace.session) as other:
        other.ask("GET", f"{workspace.shared.path}/content").is_refused("403004")


@fact("DELETE sites/{site}/datasources/{datasource}", REFERENCE)
def test_viewer_deletes(workspace: Workspace):
    """A Viewer does not delete data sources: 403004."""
    with _viewer(workspace.session) as other:
        other.ask("DELETE", workspace.published().path).is_refused("403004")


@fact("POST vizql-data-service/query-datasource", VDS_HELP)
def test_query_without_api_access(workspace: Workspace):
    """Whoever lacks API Access is refused queries with 403800, or 404937 for what is not seen."""
    fields = [{"fieldCaption": "name", "function": "COUNT"}]
    body = {"datasource": {"datasourceLuid": workspace.shared.luid}, "query": {"fields": fields}}
    with _viewer(workspace.session) as other:
        answer = call(workspace.session, "query-datasource", body, token=other.token)
        refused(answer, "403800", "404937")


@fact("GET sites/{site}/jobs/{job}", REFERENCE)
def test_job_of_another_user(workspace: Workspace):
    """A Creator does not read the job of another user: 403004."""
    job = attribute(workspace.finished(workspace.update(workspace.published(), [_CLEAR])), "id")
    with _creator(workspace.session) as other:
        other.ask("GET", f"jobs/{job}").is_refused("403004")


@fact(_PUBLISH, REFERENCE)
def test_publish_into_a_closed_project(workspace: Workspace):
    """A Creator does not publish into a project that is closed to them: 403004 or 403007."""
    project, target = _closed(workspace)
    with _creator(workspace.session) as other:
        answer = _publish(other, workspace, workspace.new_name(), project=project)
        answer.is_refused(*_FORBIDDEN)
        answer = _publish(other, workspace, target.name, project=project, query="overwrite=true")
        answer.is_refused(*_FORBIDDEN)


@fact("GET sites/{site}/datasources/{datasource}", REFERENCE)
def test_datasource_that_is_closed(workspace: Workspace):
    """What a user may not see is refused with 403004 or 404004, and missing in lists."""
    _, target = _closed(workspace)
    with _creator(workspace.session) as other:
        other.ask("GET", target.path).is_refused("403004", "404004")
        found = other.ask("GET", f"datasources?filter=name:eq:{target.name}").succeeds(200)
        assert attribute(found.element("pagination"), "totalAvailable") == "0"


@fact("PATCH sites/{site}/datasources/{datasource}/data", NOBODY)
def test_update_of_another_users_data(workspace: Workspace):
    """A Creator without the capability to write does not update data: 403004."""
    _, target = _closed(workspace)
    batch = '{"actions":[{"action":"delete","target-table":"Extract","condition":true}]}'
    headers = {"Content-Type": "application/json", "RequestID": workspace.new_name()}
    with _creator(workspace.session) as other:
        answer = other.ask("PATCH", f"{target.path}/data", batch, headers=headers)
        answer.is_refused("403004")
    assert workspace.rows(target) == [*ROWS]


@fact("PUT sites/{site}/datasources/{datasource}", REFERENCE)
def test_taking_over_a_datasource(workspace: Workspace):
    """A Creator does not take over what belongs to another user: 403004, 403027 or 403032."""
    _, target = _closed(workspace)
    with _creator(workspace.session) as other:
        change = f'<datasource><owner id="{other.user}"/></datasource>'
        answer = other.ask("PUT", target.path, f"<tsRequest>{change}</tsRequest>")
        answer.is_refused("403004", "403027", "403032")


@fact("GET sites/{site}/datasources/{datasource}/permissions", REFERENCE)
def test_permissions_read_by_others(workspace: Workspace):
    """Whoever may not change the permissions of a data source is refused them with 403004."""
    _, target = _closed(workspace)
    with _creator(workspace.session) as other:
        other.ask("GET", f"{target.path}/permissions").is_refused("403004")


@fact(_PUBLISH, NOBODY)
def test_upload_of_another_user(workspace: Workspace):
    """An upload is known to the user who began it only: 404015."""
    session = workspace.upload(rows_file(*ROWS))
    with _creator(workspace.session) as other:
        body, headers = multipart(("request_payload", "", workspace.request(workspace.new_name())))
        path = f"datasources?uploadSessionId={session}&datasourceType=hyper"
        other.ask("POST", path, body, headers=headers).is_refused("404015")


@contextmanager
def _elsewhere(session: Session) -> Generator[OtherSession]:
    """The same user on another site; the session of the session may have ended afterwards."""
    elsewhere = replace(session.credentials, site=session.others.other_site())
    with session.sessions_of_its_own(), session.other(elsewhere.as_request()) as other:
        yield other


@fact("POST auth/switchSite", REFERENCE)
def test_switch_to_another_site(session: Session):
    """Switching ends the session, and opens one on the other site, with a token of its own."""
    wanted = session.others.other_site()
    with session.sessions_of_its_own():
        body = f'<tsRequest><site contentUrl="{wanted}"/></tsRequest>'
        answer = session.call("POST", "auth/switchSite", body, token=session.token).succeeds(200)
        site = answer.element("credentials/site")
        assert attribute(site, "contentUrl") == wanted
        assert site.get("id") != session.site
        token = attribute(answer.element("credentials"), "token")
        path = f"sites/{attribute(site, 'id')}/projects"
        session.call("GET", path, token=token).succeeds(200)
        session.call("GET", f"sites/{session.site}", token=session.token).is_refused("401002")


@fact("GET sites/{any_site}", NOBODY)
def test_another_site(session: Session):
    """The record of another site than that of the session is refused with 403004."""
    with _elsewhere(session) as other:
        path = f"sites/{session.site}"
        session.call("GET", path, token=other.token).is_refused("403004")


@fact("GET sites/{site}/datasources", NOBODY)
def test_session_of_another_site(session: Session):
    """A path of another site than that of the session is refused with 403004."""
    with _elsewhere(session) as other:
        path = f"sites/{session.site}/datasources"
        session.call("GET", path, token=other.token).is_refused("403004")


@fact("GET sites/{site}/projects", REFERENCE)
def test_projects_of_each_site(session: Session):
    """Each site has a project "Default" of its own."""
    path = "projects?filter=name:eq:Default,topLevelProject:eq:true"
    here = attribute(session.ask("GET", path).succeeds(200).element("projects/project"), "id")
    with _elsewhere(session) as other:
        there = other.ask("GET", path).succeeds(200).element("projects/project")
        assert there.get("id") != here


@fact("GET sites/{site}/datasources/{datasource}", REFERENCE)
def test_datasource_of_another_site(workspace: Workspace):
    """A data source of another site is unknown: 404004."""
    path = workspace.shared.path
    with _elsewhere(workspace.session) as other:
        other.ask("GET", path).is_refused("404004")


@fact("POST vizql-data-service/read-metadata", MCP)
def test_service_of_another_site(workspace: Workspace):
    """VizQL Data Service knows the data sources of the session's site only: 404937."""
    body = {"datasource": {"datasourceLuid": workspace.shared.luid}}
    with _elsewhere(workspace.session) as other:
        refused(call(workspace.session, "read-metadata", body, token=other.token), "404937")
