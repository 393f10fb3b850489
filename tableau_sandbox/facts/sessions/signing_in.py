"""Versions, signing in and out, and what is refused without a session."""

import json
import re
from uuid import uuid4
from xml.sax.saxutils import quoteattr

from tableau_sandbox.facts.answer import Answer, NotShown, attribute, expect, expect_that
from tableau_sandbox.facts.credentials import Credentials
from tableau_sandbox.facts.fact import reads
from tableau_sandbox.facts.scene import OLDEST_VERSION, Scene
from tableau_sandbox.facts.sources import (
    JSON_CLIENTS,
    KNOWLEDGE_BASE,
    LIVE_TESTS,
    MCP,
    REFERENCE,
    SAMPLES,
    SCHEMA,
    TSC,
)

_JSON = {"Accept": "application/json"}
_NO_SUCH_TOKEN = Credentials(token_name="no-such-token", token_value="no-such-secret")  # noqa: S106


@reads("GET serverInfo", TSC)
def server_info_needs_no_session(scene: Scene) -> None:
    """The versions of the product and of the REST API are told without a session."""
    answer = scene.call("GET", "serverInfo", version=OLDEST_VERSION).succeeds(200)
    expect_that(answer.element("serverInfo/productVersion").text, "a product version", answer)
    version = answer.element("serverInfo/restApiVersion").text or ""
    expect_that(re.fullmatch(r"\d+\.\d+", version), "a version such as 3.27", version)


@reads("GET serverInfo", SCHEMA)
def build_has_four_numbers(scene: Scene) -> None:
    """The build has the form 20253.25.1021.0000."""
    answer = scene.call("GET", "serverInfo", version=OLDEST_VERSION).succeeds(200)
    build = attribute(answer.element("serverInfo/productVersion"), "build")
    expect_that(re.fullmatch(r"\d{5}\.\d\d\.\d{4}\.\d{4}", build), "20253.25.1021.0000", build)


@reads("GET serverInfo", SAMPLES)
def server_info_in_lower_case(scene: Scene) -> None:
    """The path may be written serverinfo."""
    scene.call("GET", "serverinfo").succeeds(200)


@reads("GET serverInfo", TSC)
def xml_begins_with_its_declaration(scene: Scene) -> None:
    """An answer begins with <?xml and has the namespace of the API."""
    answer = scene.call("GET", "serverInfo").succeeds(200)
    expect(b"<?xml", answer.content[:5])
    expect_that(b"http://tableau.com/api" in answer.content, "the namespace", "another one")


@reads("GET serverInfo", MCP)
def json_on_request(scene: Scene) -> None:
    """An answer is JSON if the header Accept asks for it."""
    answer = scene.call("GET", "serverInfo", headers=_JSON).succeeds(200)
    info = answer.json().get("serverInfo", {})
    expect_that(isinstance(info.get("restApiVersion"), str), "serverInfo.restApiVersion", answer)


@reads("POST auth/signin", TSC)
def sign_in_on_the_oldest_path(scene: Scene) -> None:
    """A token signs in on the path of version 2.4, where clients ask for the newest one."""
    with scene.sessions_of_its_own():
        body = scene.credentials.as_request()
        answer = scene.call("POST", "auth/signin", body, version=OLDEST_VERSION).succeeds(200)
        attribute(answer.element("credentials"), "token")
        expect(scene.site, attribute(answer.element("credentials/site"), "id"))
        expect(scene.user, attribute(answer.element("credentials/user"), "id"))


@reads("POST auth/signin", SCHEMA)
def time_to_expiration(scene: Scene) -> None:
    """The answer says how long the session lasts, in hours, minutes and seconds."""
    with scene.sessions_of_its_own():
        answer = scene.call("POST", "auth/signin", scene.credentials.as_request()).succeeds(200)
        lasts = attribute(answer.element("credentials"), "estimatedTimeToExpiration")
    expect_that(re.fullmatch(r"\d+:\d{1,2}:\d{1,2}", lasts), "a duration such as 3:59:12", lasts)


@reads("POST auth/signin", TSC)
def sign_in_by_password(scene: Scene) -> None:
    """A user signs in with a name and a password."""
    name, password = scene.others.password()
    body = (
        f"<tsRequest><credentials name={quoteattr(name)} password={quoteattr(password)}>"
        f"<site contentUrl={quoteattr(scene.credentials.site)}/></credentials></tsRequest>"
    )
    with scene.guest(body) as guest:
        expect(scene.site, guest.site)


@reads("POST auth/signin", REFERENCE)
def impersonated_unknown_user(scene: Scene) -> None:
    """Administrators who sign in for a user who does not exist are refused with 404002."""
    with scene.sessions_of_its_own():
        body = scene.credentials.as_request(user=str(uuid4()))
        answer = scene.call("POST", "auth/signin", body)
    if answer.status in (401, 403):
        raise NotShown("the user is no administrator, or may not impersonate with a token")
    answer.is_refused("404002")


@reads("POST auth/signin", TSC)
def request_in_a_namespace(scene: Scene) -> None:
    """The elements of a request may be in the namespace of the API."""
    with scene.sessions_of_its_own():
        plain = scene.credentials.as_request()
        body = plain.replace("<tsRequest>", '<tsRequest xmlns="http://tableau.com/api">')
        scene.call("POST", "auth/signin", body).succeeds(200)


@reads("POST auth/signin", TSC)
def json_request_answered_in_xml(scene: Scene) -> None:
    """The content type of a request does not choose the form of the answer."""
    headers = {"Accept": "*/*", "Content-Type": "application/json"}
    body = json.dumps({"credentials": {}})
    scene.call("POST", "auth/signin", body, headers=headers).is_refused("400000")


@reads("GET sites/{any_site}", TSC)
def header_in_any_case(scene: Scene) -> None:
    """The name of the header with the token may be written in any case of letters."""
    headers = {"x-tableau-auth": scene.token}
    scene.call("GET", f"sites/{scene.site}", headers=headers).succeeds(200)


def _sign_in_by_json(scene: Scene, credentials: Credentials, **more: object) -> Answer:
    body = {
        "personalAccessTokenName": credentials.token_name,
        "personalAccessTokenSecret": credentials.token_value,
        "site": {"contentUrl": credentials.site},
    }
    headers = {**_JSON, "Content-Type": "application/json"}
    request = json.dumps({"credentials": body | more})
    return scene.call("POST", "auth/signin", request, headers=headers)


@reads("POST auth/signin", JSON_CLIENTS)
def sign_in_by_json(scene: Scene) -> None:
    """The request to sign in may be JSON."""
    with scene.sessions_of_its_own():
        answer = _sign_in_by_json(scene, scene.credentials).succeeds(200)
        found = answer.json().get("credentials", {})
    for part in ("token", "site", "user"):
        expect_that(part in found, f"credentials.{part}", answer)
    expect(scene.site, found["site"].get("id"))


@reads("POST auth/signin", JSON_CLIENTS)
def sign_in_by_json_for_nobody_else(scene: Scene) -> None:
    """A JSON request may name null as the user to impersonate."""
    with scene.sessions_of_its_own():
        _sign_in_by_json(scene, scene.credentials, user={"id": None}).succeeds(200)


@reads("POST auth/signin", REFERENCE)
def wrong_credentials(scene: Scene) -> None:
    """Unknown credentials are refused with 401001."""
    scene.call("POST", "auth/signin", _NO_SUCH_TOKEN.as_request()).is_refused("401001")


@reads("POST auth/signin", MCP)
def wrong_credentials_in_json(scene: Scene) -> None:
    """The code of a refusal in JSON is a string."""
    answer = _sign_in_by_json(scene, _NO_SUCH_TOKEN).succeeds(401)
    expect("401001", answer.json().get("error", {}).get("code"))


@reads("POST auth/signin", REFERENCE)
def unknown_site(scene: Scene) -> None:
    """A site that does not exist is refused like wrong credentials."""
    with scene.sessions_of_its_own():
        elsewhere = Credentials(
            token_name=scene.credentials.token_name,
            token_value=scene.credentials.token_value,
            site="no-such-site-for-verify",
        )
        scene.call("POST", "auth/signin", elsewhere.as_request()).is_refused("401001")


@reads("POST auth/signin", REFERENCE)
def malformed_sign_in(scene: Scene) -> None:
    """A request that breaks off is refused with 400000."""
    scene.call("POST", "auth/signin", "<tsRequest><credentials").is_refused("400000")


@reads("POST auth/signin", REFERENCE)
def two_kinds_of_credentials(scene: Scene) -> None:
    """A request with a password and a token is refused with 400000."""
    body = (
        '<tsRequest><credentials name="a" password="b" personalAccessTokenName="c"'
        ' personalAccessTokenSecret="d"><site contentUrl=""/></credentials></tsRequest>'
    )
    scene.call("POST", "auth/signin", body).is_refused("400000")


@reads("POST auth/signin", MCP)
def one_session_per_token(scene: Scene) -> None:
    """A second sign-in with a personal access token ends the first session."""
    first = scene.token
    with scene.sessions_of_its_own():
        scene.sign_in()
        path = f"sites/{scene.site}"
        scene.call("GET", path, token=first).is_refused("401002")


@reads("POST auth/signout", REFERENCE)
def sign_out(scene: Scene) -> None:
    """Signing out is answered 204 and ends the session."""
    with scene.sessions_of_its_own():
        scene.call("POST", "auth/signout", token=scene.token).succeeds(204)
        scene.call("GET", f"sites/{scene.site}", token=scene.token).is_refused("401002")


def _switch(scene: Scene, site: str) -> Answer:
    body = f'<tsRequest><site contentUrl="{site}"/></tsRequest>'
    return scene.call("POST", "auth/switchSite", body, token=scene.token)


@reads("POST auth/switchSite", REFERENCE)
def switch_to_the_same_site(scene: Scene) -> None:
    """Switching to the site of the session is refused with 403070."""
    with scene.sessions_of_its_own():
        _switch(scene, scene.credentials.site).is_refused("403070")


@reads("POST auth/switchSite", REFERENCE)
def switch_to_an_unknown_site(scene: Scene) -> None:
    """Switching to a site that does not exist is refused with 401003."""
    with scene.sessions_of_its_own():
        _switch(scene, "no-such-site-for-verify").is_refused("401003")


@reads("GET sites/{any_site}", KNOWLEDGE_BASE)
def no_session(scene: Scene) -> None:
    """A call without a token is refused with 401000."""
    scene.call("GET", f"sites/{scene.site}").is_refused("401000")


@reads("GET sites/{any_site}", REFERENCE)
def unknown_session(scene: Scene) -> None:
    """A call with an unknown token is refused with 401002."""
    token = f"unknown|unknown|{scene.site}"
    scene.call("GET", f"sites/{scene.site}", token=token).is_refused("401002")


@reads("POST auth/signin", LIVE_TESTS)
def request_in_chunks(scene: Scene) -> None:
    """The body of a request may come in chunks."""
    with scene.sessions_of_its_own():
        body = scene.credentials.as_request().encode()
        scene.call("POST", "auth/signin", iter((body[:20], body[20:]))).succeeds(200)
