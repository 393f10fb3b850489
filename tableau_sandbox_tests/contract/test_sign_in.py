"""Versions, signing in and out, and what is refused without a session."""

import json
import re
from uuid import uuid4
from xml.sax.saxutils import quoteattr

import pytest

from tableau_sandbox_tests.contract.answer import Answer, attribute
from tableau_sandbox_tests.contract.session import OLDEST_VERSION, Credentials, Session
from tableau_sandbox_tests.contract.sources import (
    JSON_CLIENTS,
    KNOWLEDGE_BASE,
    LIVE_TESTS,
    MCP,
    REFERENCE,
    SAMPLES,
    SCHEMA,
    TSC,
    fact,
)

_JSON = {"Accept": "application/json"}
_NO_SUCH_TOKEN = Credentials(token_name="no-such-token", token_value="no-such-secret")


@fact("GET serverInfo", TSC)
def test_server_info_needs_no_session(session: Session):
    """The versions of the product and of the REST API are told without a session."""
    answer = session.call("GET", "serverInfo", version=OLDEST_VERSION).succeeds(200)
    assert answer.element("serverInfo/productVersion").text, answer
    version = answer.element("serverInfo/restApiVersion").text or ""
    assert re.fullmatch(r"\d+\.\d+", version), version


@fact("GET serverInfo", SCHEMA)
def test_build_has_four_numbers(session: Session):
    """The build has the form 20253.25.1021.0000."""
    answer = session.call("GET", "serverInfo", version=OLDEST_VERSION).succeeds(200)
    build = attribute(answer.element("serverInfo/productVersion"), "build")
    assert re.fullmatch(r"\d{5}\.\d\d\.\d{4}\.\d{4}", build), build


@fact("GET serverInfo", SAMPLES)
def test_server_info_in_lower_case(session: Session):
    """The path may be written serverinfo."""
    session.call("GET", "serverinfo").succeeds(200)


@fact("GET serverInfo", TSC)
def test_xml_begins_with_its_declaration(session: Session):
    """An answer begins with <?xml and has the namespace of the API."""
    answer = session.call("GET", "serverInfo").succeeds(200)
    assert answer.content[:5] == b"<?xml"
    assert b"http://tableau.com/api" in answer.content


@fact("GET serverInfo", MCP)
def test_json_on_request(session: Session):
    """An answer is JSON if the header Accept asks for it."""
    answer = session.call("GET", "serverInfo", headers=_JSON).succeeds(200)
    info = answer.json().get("serverInfo", {})
    assert isinstance(info.get("restApiVersion"), str), answer


@fact("POST auth/signin", TSC)
def test_sign_in_on_the_oldest_path(session: Session):
    """A token signs in on the path of version 2.4, where clients ask for the newest one."""
    with session.sessions_of_its_own():
        body = session.credentials.as_request()
        answer = session.call("POST", "auth/signin", body, version=OLDEST_VERSION).succeeds(200)
        attribute(answer.element("credentials"), "token")
        assert attribute(answer.element("credentials/site"), "id") == session.site
        assert attribute(answer.element("credentials/user"), "id") == session.user


@fact("POST auth/signin", SCHEMA)
def test_time_to_expiration(session: Session):
    """The answer says how long the session lasts, in hours, minutes and seconds."""
    with session.sessions_of_its_own():
        answer = session.call("POST", "auth/signin", session.credentials.as_request()).succeeds(200)
        lasts = attribute(answer.element("credentials"), "estimatedTimeToExpiration")
    assert re.fullmatch(r"\d+:\d{1,2}:\d{1,2}", lasts), lasts


@fact("POST auth/signin", TSC)
def test_sign_in_by_password(session: Session):
    """A user signs in with a name and a password."""
    name, password = session.others.password()
    body = (
        f"<tsRequest><credentials name={quoteattr(name)} password={quoteattr(password)}>"
        f"<site contentUrl={quoteattr(session.credentials.site)}/></credentials></tsRequest>"
    )
    with session.other(body) as other:
        assert other.site == session.site


@fact("POST auth/signin", REFERENCE)
def test_impersonated_unknown_user(session: Session):
    """Administrators who sign in for a user who does not exist are refused with 404002."""
    with session.sessions_of_its_own():
        body = session.credentials.as_request(user=str(uuid4()))
        answer = session.call("POST", "auth/signin", body)
    if answer.status in (401, 403):
        pytest.skip("the user is no administrator, or may not impersonate with a token")
    answer.is_refused("404002")


@fact("POST auth/signin", TSC)
def test_request_in_a_namespace(session: Session):
    """The elements of a request may be in the namespace of the API."""
    with session.sessions_of_its_own():
        plain = session.credentials.as_request()
        body = plain.replace("<tsRequest>", '<tsRequest xmlns="http://tableau.com/api">')
        session.call("POST", "auth/signin", body).succeeds(200)


@fact("POST auth/signin", TSC)
def test_json_request_answered_in_xml(session: Session):
    """The content type of a request does not choose the form of the answer."""
    headers = {"Accept": "*/*", "Content-Type": "application/json"}
    body = json.dumps({"credentials": {}})
    session.call("POST", "auth/signin", body, headers=headers).is_refused("400000")


@fact("GET sites/{any_site}", TSC)
def test_header_in_any_case(session: Session):
    """The name of the header with the token may be written in any case of letters."""
    headers = {"x-tableau-auth": session.token}
    session.call("GET", f"sites/{session.site}", headers=headers).succeeds(200)


def _sign_in_by_json(session: Session, credentials: Credentials, **more: object) -> Answer:
    body = {
        "personalAccessTokenName": credentials.token_name,
        "personalAccessTokenSecret": credentials.token_value,
        "site": {"contentUrl": credentials.site},
    }
    headers = {**_JSON, "Content-Type": "application/json"}
    request = json.dumps({"credentials": body | more})
    return session.call("POST", "auth/signin", request, headers=headers)


@fact("POST auth/signin", JSON_CLIENTS)
def test_sign_in_by_json(session: Session):
    """The request to sign in may be JSON."""
    with session.sessions_of_its_own():
        answer = _sign_in_by_json(session, session.credentials).succeeds(200)
        found = answer.json().get("credentials", {})
    for part in ("token", "site", "user"):
        assert part in found, answer
    assert found["site"].get("id") == session.site


@fact("POST auth/signin", JSON_CLIENTS)
def test_sign_in_by_json_for_nobody_else(session: Session):
    """A JSON request may name null as the user to impersonate."""
    with session.sessions_of_its_own():
        _sign_in_by_json(session, session.credentials, user={"id": None}).succeeds(200)


@fact("POST auth/signin", REFERENCE)
def test_wrong_credentials(session: Session):
    """Unknown credentials are refused with 401001."""
    session.call("POST", "auth/signin", _NO_SUCH_TOKEN.as_request()).is_refused("401001")


@fact("POST auth/signin", MCP)
def test_wrong_credentials_in_json(session: Session):
    """The code of a refusal in JSON is a string."""
    answer = _sign_in_by_json(session, _NO_SUCH_TOKEN).succeeds(401)
    assert answer.json().get("error", {}).get("code") == "401001"


@fact("POST auth/signin", REFERENCE)
def test_unknown_site(session: Session):
    """A site that does not exist is refused like wrong credentials."""
    with session.sessions_of_its_own():
        elsewhere = Credentials(
            token_name=session.credentials.token_name,
            token_value=session.credentials.token_value,
            site="no-such-site-for-verify",
        )
        session.call("POST", "auth/signin", elsewhere.as_request()).is_refused("401001")


@fact("POST auth/signin", REFERENCE)
def test_malformed_sign_in(session: Session):
    """A request that breaks off is refused with 400000."""
    session.call("POST", "auth/signin", "<tsRequest><credentials").is_refused("400000")


@fact("POST auth/signin", REFERENCE)
def test_two_kinds_of_credentials(session: Session):
    """A request with a password and a token is refused with 400000."""
    body = (
        '<tsRequest><credentials name="a" password="b" personalAccessTokenName="c"'
        ' personalAccessTokenSecret="d"><site contentUrl=""/></credentials></tsRequest>'
    )
    session.call("POST", "auth/signin", body).is_refused("400000")


@fact("POST auth/signin", MCP)
def test_one_session_per_token(session: Session):
    """A second sign-in with a personal access token ends the first session."""
    first = session.token
    with session.sessions_of_its_own():
        session.sign_in()
        path = f"sites/{session.site}"
        session.call("GET", path, token=first).is_refused("401002")


@fact("POST auth/signout", REFERENCE)
def test_sign_out(session: Session):
    """Signing out is answered 204 and ends the session."""
    with session.sessions_of_its_own():
        session.call("POST", "auth/signout", token=session.token).succeeds(204)
        session.call("GET", f"sites/{session.site}", token=session.token).is_refused("401002")


def _switch(session: Session, site: str) -> Answer:
    body = f'<tsRequest><site contentUrl="{site}"/></tsRequest>'
    return session.call("POST", "auth/switchSite", body, token=session.token)


@fact("POST auth/switchSite", REFERENCE)
def test_switch_to_the_same_site(session: Session):
    """Switching to the site of the session is refused with 403070."""
    with session.sessions_of_its_own():
        _switch(session, session.credentials.site).is_refused("403070")


@fact("POST auth/switchSite", REFERENCE)
def test_switch_to_an_unknown_site(session: Session):
    """Switching to a site that does not exist is refused with 401003."""
    with session.sessions_of_its_own():
        _switch(session, "no-such-site-for-verify").is_refused("401003")


@fact("GET sites/{any_site}", KNOWLEDGE_BASE)
def test_no_session(session: Session):
    """A call without a token is refused with 401000."""
    session.call("GET", f"sites/{session.site}").is_refused("401000")


@fact("GET sites/{any_site}", REFERENCE)
def test_unknown_session(session: Session):
    """A call with an unknown token is refused with 401002."""
    token = f"unknown|unknown|{session.site}"
    session.call("GET", f"sites/{session.site}", token=token).is_refused("401002")


@fact("POST auth/signin", LIVE_TESTS)
def test_request_in_chunks(session: Session):
    """The body of a request may come in chunks."""
    with session.sessions_of_its_own():
        body = session.credentials.as_request().encode()
        session.call("POST", "auth/signin", iter((body[:20], body[20:]))).succeeds(200)


_BATCH = '{"actions":[{"action":"delete","target-table":"t","condition":true}]}'


def _ask(session: Session, version: str, method: str, path: str, body: str = "") -> Answer:
    session.needs_version(version)
    headers = {"Content-Type": "application/json", "RequestID": str(uuid4())} if body else {}
    whole = f"sites/{session.site}/{path}"
    return session.call(method, whole, body, token=session.token, version=version, headers=headers)


@fact("GET sites/{site}/projects", TSC)
def test_older_versions_are_served(session: Session):
    """A session works on the paths of older versions, too."""
    for version in (OLDEST_VERSION, "3.0"):
        _ask(session, version, "GET", "projects?pageSize=1").succeeds(200)


@fact("PATCH sites/{site}/datasources/{datasource}/data", REFERENCE)
def test_update_before_its_version(session: Session):
    """Version 3.12 brought updates of data; on the path of 3.11, they do not exist."""
    path = f"datasources/{uuid4()}/data"
    _ask(session, "3.11", "PATCH", path, _BATCH).is_refused("404003", "405000")


@fact("GET sites/{site}/jobs", REFERENCE)
def test_jobs_before_their_version(session: Session):
    """Version 2.6 brought the list of jobs; on the path of 2.5, it does not exist."""
    _ask(session, "2.5", "GET", "jobs").is_refused("404003", "405000")


@fact("POST auth/switchSite", REFERENCE)
def test_switch_before_its_version(session: Session):
    """Version 2.6 brought switching sites; on the path of 2.5, it does not exist."""
    body = '<tsRequest><site contentUrl="no-such-site-for-verify"/></tsRequest>'
    answer = session.call("POST", "auth/switchSite", body, token=session.token, version="2.5")
    answer.is_refused("404003", "405000")


@fact("GET sites/{site}/flows", REFERENCE)
def test_flows_before_their_version(session: Session):
    """Version 3.3 brought flows; on the path of 3.2, they do not exist."""
    _ask(session, "3.2", "GET", "flows").is_refused("404003", "405000")


@fact("PUT sites/{site}/datasources/{datasource}/connections", TSC)
def test_connections_before_their_version(session: Session):
    """Version 3.26 brought updates of several connections; on the path of 3.25, there are none."""
    body = "<tsRequest><connectionLUIDs/></tsRequest>"
    path = f"datasources/{uuid4()}/connections"
    _ask(session, "3.25", "PUT", path, body).is_refused("404003", "405000")
