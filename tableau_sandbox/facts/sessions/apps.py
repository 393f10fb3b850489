"""Connected apps: how they sign a user in, and what their scopes let the session do."""

from datetime import timedelta
from uuid import uuid4

from tableau_sandbox.facts.answer import attribute, expect, expect_that
from tableau_sandbox.facts.credentials import App
from tableau_sandbox.facts.fact import reads, writes
from tableau_sandbox.facts.multipart import multipart
from tableau_sandbox.facts.playground import Playground
from tableau_sandbox.facts.scene import OLDEST_VERSION, Scene
from tableau_sandbox.facts.sources import MCP, SCOPES, TSC
from tableau_sandbox.facts.vds.asking import call, refused

_SIGN_IN = "POST auth/signin"
_READ = "tableau:content:read"
_NO_LUID = {"datasource": {"datasourceLuid": "00000000-0000-0000-0000-000000000000"}}


def _app(scene: Scene) -> App:
    return scene.others.app(scene.credentials.site)


@reads(_SIGN_IN, TSC)
def app_signs_in(scene: Scene) -> None:
    """A connected app signs a user in with a token, also on the path of version 2.4."""
    body = _app(scene).as_request(_READ)
    answer = scene.call("POST", "auth/signin", body, version=OLDEST_VERSION).succeeds(200)
    attribute(answer.element("credentials"), "token")
    expect(scene.site, attribute(answer.element("credentials/site"), "id"))


@reads(_SIGN_IN, SCOPES)
def token_of_an_app_for_hours(scene: Scene) -> None:
    """A token that is valid for more than ten minutes is refused with 401001."""
    body = _app(scene).as_request(_READ, lasts=timedelta(hours=2))
    scene.call("POST", "auth/signin", body).is_refused("401001")


@reads(_SIGN_IN, SCOPES)
def token_of_an_app_that_has_expired(scene: Scene) -> None:
    """A token that is no longer valid is refused with 401001."""
    body = _app(scene).as_request(_READ, lasts=timedelta(minutes=-5))
    scene.call("POST", "auth/signin", body).is_refused("401001")


@reads(_SIGN_IN, SCOPES)
def token_of_an_app_used_twice(scene: Scene) -> None:
    """A token signs in once; the second time, it is refused with 401001."""
    body = _app(scene).as_request(_READ)
    scene.call("POST", "auth/signin", body).succeeds(200)
    scene.call("POST", "auth/signin", body).is_refused("401001")


@reads("GET sites/{site}/datasources", SCOPES)
def scope_to_read_content(scene: Scene) -> None:
    """The scope tableau:content:read is enough to list data sources and projects."""
    with scene.guest(_app(scene).as_request(_READ)) as guest:
        guest.ask("GET", "datasources").succeeds(200)
        guest.ask("GET", "projects").succeeds(200)


@reads("GET sites/{site}/users/{user}", SCOPES)
def call_without_its_scope(scene: Scene) -> None:
    """A call whose scope the token lacks is refused with 401002."""
    with scene.guest(_app(scene).as_request(_READ)) as guest:
        guest.ask("GET", f"users/{guest.user}").is_refused("401002")


@reads("GET sites/{site}/datasources", SCOPES)
def made_up_scope(scene: Scene) -> None:
    """A scope that does not exist lets a session do nothing: sign-in or calls are refused."""
    body = _app(scene).as_request("tableau:nothing:read")
    answer = scene.call("POST", "auth/signin", body)
    if answer.status == 200:
        token = attribute(answer.element("credentials"), "token")
        answer = scene.call("GET", f"sites/{scene.site}/datasources", token=token)
    answer.is_refused("401001", "401002")


@reads("GET sites/{site}/jobs/{job}", SCOPES)
def wildcard_of_a_resource(scene: Scene) -> None:
    """The wildcard tableau:jobs:* stands for all actions on jobs, and for no other resource."""
    with scene.guest(_app(scene).as_request("tableau:jobs:*")) as guest:
        guest.ask("GET", f"jobs/{uuid4()}").is_refused("404018")
        guest.ask("GET", "datasources").is_refused("401002")


@reads("POST vizql-data-service/read-metadata", MCP)
def scope_of_the_data_service(scene: Scene) -> None:
    """VizQL Data Service needs the scope tableau:viz_data_service:read."""
    app = _app(scene)
    with scene.guest(app.as_request("tableau:viz_data_service:read")) as guest:
        refused(call(scene, "read-metadata", _NO_LUID, token=guest.token), "404937")
    with scene.guest(app.as_request(_READ)) as guest:
        answer = call(scene, "read-metadata", _NO_LUID, token=guest.token)
    expect_that(answer.status in (401, 403), "401 or 403", answer)


@writes("POST sites/{site}/datasources", SCOPES)
def publish_without_its_scope(play: Playground) -> None:
    """A session that may only read does not publish: 401002."""
    body, headers = multipart(
        ("request_payload", "", play.request(play.new_name())),
        ("tableau_datasource", "file.hyper", b""),
    )
    with play.scene.guest(_app(play.scene).as_request(_READ)) as guest:
        guest.ask("POST", "datasources", body, headers=headers).is_refused("401002")


@writes("DELETE sites/{site}/datasources/{datasource}", SCOPES)
def delete_without_its_scope(play: Playground) -> None:
    """A session that may create and update data sources does not delete them: 401002."""
    scopes = (f"tableau:datasources:{action}" for action in ("create", "update"))
    with play.scene.guest(_app(play.scene).as_request(*scopes)) as guest:
        guest.ask("DELETE", play.published().path).is_refused("401002")
