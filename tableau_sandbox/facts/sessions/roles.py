"""Other users: what a Viewer, and a Creator without rights, are refused."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tableau_sandbox.facts.answer import Deviation, NotShown, attribute, expect
from tableau_sandbox.facts.credentials import Credentials
from tableau_sandbox.facts.fact import reads, writes
from tableau_sandbox.facts.files import rows_file
from tableau_sandbox.facts.multipart import multipart
from tableau_sandbox.facts.playground import ROWS, Playground, Published
from tableau_sandbox.facts.scene import Guest, Scene
from tableau_sandbox.facts.sources import NOBODY, REFERENCE, VDS_HELP
from tableau_sandbox.facts.vds.asking import call, refused

_PUBLISH = "POST sites/{site}/datasources"
_CLEAR = {"action": "delete", "target-table": "Extract", "condition": True}
_FORBIDDEN = ("403004", "403007")


@contextmanager
def _signed_in(scene: Scene, who: Credentials, *roles: str) -> Generator[Guest]:
    try:
        guests = scene.guest(who.as_request())
        guest = guests.__enter__()
    except Deviation as refusal:
        raise NotShown("the token of the other user does not sign in") from refusal
    try:
        record = guest.ask("GET", f"users/{guest.user}").succeeds(200).element("user")
        if record.get("siteRole") not in roles:
            raise NotShown(f"the other user is no {roles[0]}")
        yield guest
    finally:
        guests.__exit__(None, None, None)


def _viewer(scene: Scene) -> Any:
    return _signed_in(scene, scene.others.viewer(scene.credentials.site), "Viewer")


def _creator(scene: Scene) -> Any:
    who = scene.others.creator(scene.credentials.site)
    return _signed_in(scene, who, "Creator", "ExplorerCanPublish")


def _publish(guest: Guest, play: Playground, name: str, *, project: str, query: str = "") -> Any:
    body, headers = multipart(
        ("request_payload", "", play.request(name, project=project)),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    )
    return guest.ask("POST", f"datasources?{query}", body, headers=headers)


def _closed(play: Playground) -> tuple[str, Published]:
    """Return a new project without rules for anybody, and a data source in it."""
    project, name = play.new_project(), play.new_name()
    _revoke_all(play, f"projects/{project}/permissions")
    parts = (
        ("request_payload", "", play.request(name, project=project)),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    )
    answer = play.send_parts("POST", "datasources", *parts).succeeds(201)
    target = Published(attribute(answer.element("datasource"), "id"), name)
    _revoke_all(play, f"{target.path}/permissions")
    return project, target


def _revoke_all(play: Playground, path: str) -> None:
    for rule in play.ask("GET", path).succeeds(200).elements("permissions/granteeCapabilities"):
        grantee = next(each for each in rule if each.tag in ("user", "group"))
        for item in rule.findall("capabilities/capability"):
            capability = f"{attribute(item, 'name')}/{attribute(item, 'mode')}"
            named = f"{grantee.tag}s/{attribute(grantee, 'id')}/{capability}"
            play.ask("DELETE", f"{path}/{named}").succeeds(204)


@reads("GET sites/{site}/users/{user}", REFERENCE)
def viewer_looks_up_another_user(scene: Scene) -> None:
    """Whoever is no administrator is refused the record of another user with 403004."""
    with _viewer(scene) as guest:
        guest.ask("GET", f"users/{scene.user}").is_refused("403004")


@reads("GET sites/{site}/users", REFERENCE)
def viewer_lists_users(scene: Scene) -> None:
    """Whoever is no administrator is refused the list of users with 403004."""
    with _viewer(scene) as guest:
        guest.ask("GET", "users").is_refused("403004")


@reads("GET sites/{site}/jobs", REFERENCE)
def viewer_lists_jobs(scene: Scene) -> None:
    """Whoever is no administrator is refused the list of jobs with 403004."""
    with _viewer(scene) as guest:
        guest.ask("GET", "jobs").is_refused("403004")


@reads("POST sites/{site}/fileUploads", REFERENCE)
def viewer_uploads(scene: Scene) -> None:
    """A Viewer does not upload: 403004."""
    with _viewer(scene) as guest:
        guest.ask("POST", "fileUploads").is_refused("403004")


@writes(_PUBLISH, REFERENCE)
def viewer_publishes(play: Playground) -> None:
    """A Viewer does not publish: 403004 or 403007."""
    with _viewer(play.scene) as guest:
        answer = _publish(guest, play, play.new_name(), project=play.project)
        answer.is_refused(*_FORBIDDEN)


@writes("GET sites/{site}/datasources/{datasource}/content", REFERENCE)
def viewer_downloads(play: Playground) -> None:
    """A Viewer does not download data sources: 403004."""
    with _viewer(play.scene) as guest:
        guest.ask("GET", f"{play.shared.path}/content").is_refused("403004")


@writes("DELETE sites/{site}/datasources/{datasource}", REFERENCE)
def viewer_deletes(play: Playground) -> None:
    """A Viewer does not delete data sources: 403004."""
    with _viewer(play.scene) as guest:
        guest.ask("DELETE", play.published().path).is_refused("403004")


@writes("POST vizql-data-service/query-datasource", VDS_HELP)
def query_without_api_access(play: Playground) -> None:
    """Whoever lacks API Access is refused queries with 403800, or 404937 for what is not seen."""
    fields = [{"fieldCaption": "name", "function": "COUNT"}]
    body = {"datasource": {"datasourceLuid": play.shared.luid}, "query": {"fields": fields}}
    with _viewer(play.scene) as guest:
        answer = call(play.scene, "query-datasource", body, token=guest.token)
        refused(answer, "403800", "404937")


@writes("GET sites/{site}/jobs/{job}", REFERENCE)
def job_of_another_user(play: Playground) -> None:
    """A Creator does not read the job of another user: 403004."""
    job = attribute(play.finished(play.update(play.published(), [_CLEAR])), "id")
    with _creator(play.scene) as guest:
        guest.ask("GET", f"jobs/{job}").is_refused("403004")


@writes(_PUBLISH, REFERENCE)
def publish_into_a_closed_project(play: Playground) -> None:
    """A Creator does not publish into a project that is closed to them: 403004 or 403007."""
    project, target = _closed(play)
    with _creator(play.scene) as guest:
        answer = _publish(guest, play, play.new_name(), project=project)
        answer.is_refused(*_FORBIDDEN)
        answer = _publish(guest, play, target.name, project=project, query="overwrite=true")
        answer.is_refused(*_FORBIDDEN)


@writes("GET sites/{site}/datasources/{datasource}", REFERENCE)
def datasource_that_is_closed(play: Playground) -> None:
    """What a user may not see is refused with 403004 or 404004, and missing in lists."""
    _, target = _closed(play)
    with _creator(play.scene) as guest:
        guest.ask("GET", target.path).is_refused("403004", "404004")
        found = guest.ask("GET", f"datasources?filter=name:eq:{target.name}").succeeds(200)
        expect("0", attribute(found.element("pagination"), "totalAvailable"))


@writes("PATCH sites/{site}/datasources/{datasource}/data", NOBODY)
def update_of_another_users_data(play: Playground) -> None:
    """A Creator without the capability to write does not update data: 403004."""
    _, target = _closed(play)
    batch = '{"actions":[{"action":"delete","target-table":"Extract","condition":true}]}'
    headers = {"Content-Type": "application/json", "RequestID": play.new_name()}
    with _creator(play.scene) as guest:
        answer = guest.ask("PATCH", f"{target.path}/data", batch, headers=headers)
        answer.is_refused("403004")
    expect([*ROWS], play.rows(target))


@writes("PUT sites/{site}/datasources/{datasource}", REFERENCE)
def taking_over_a_datasource(play: Playground) -> None:
    """A Creator does not take over what belongs to another user: 403004, 403027 or 403032."""
    _, target = _closed(play)
    with _creator(play.scene) as guest:
        change = f'<datasource><owner id="{guest.user}"/></datasource>'
        answer = guest.ask("PUT", target.path, f"<tsRequest>{change}</tsRequest>")
        answer.is_refused("403004", "403027", "403032")


@writes("GET sites/{site}/datasources/{datasource}/permissions", REFERENCE)
def permissions_read_by_others(play: Playground) -> None:
    """Whoever may not change the permissions of a data source is refused them with 403004."""
    _, target = _closed(play)
    with _creator(play.scene) as guest:
        guest.ask("GET", f"{target.path}/permissions").is_refused("403004")


@writes(_PUBLISH, NOBODY)
def upload_of_another_user(play: Playground) -> None:
    """An upload is known to the user who began it only: 404015."""
    session = play.upload(rows_file(*ROWS))
    with _creator(play.scene) as guest:
        body, headers = multipart(("request_payload", "", play.request(play.new_name())))
        path = f"datasources?uploadSessionId={session}&datasourceType=hyper"
        guest.ask("POST", path, body, headers=headers).is_refused("404015")
