"""Versions, signing in and out, and refusals without a session."""

import re
from collections.abc import Iterator

from tableau_sandbox_tests.contract.session import OLDEST_VERSION, Answer, Session, sign_in_request
from tableau_sandbox_tests.contract.sources import Source, fact

_INFO = "GET serverInfo"
_SIGN_IN = "POST auth/signin"
_SITE = "GET sites/{site}"
_NO_TOKEN = {"personalAccessTokenName": "no-such-token", "personalAccessTokenSecret": "x"}
_NO_SITE = "no-such-site-for-verify"


@fact(_INFO, Source.TSC)
def test_server_info_needs_no_session(session: Session):
    """The versions of the product and of the REST API can be read without a session."""
    answer = session.call("GET", "serverInfo", version=OLDEST_VERSION).succeeds()
    assert answer["serverInfo/productVersion"]
    assert re.fullmatch(r"\d+\.\d+", answer["serverInfo/restApiVersion"])


@fact(_INFO, Source.SCHEMA)
def test_build_has_four_numbers(session: Session):
    """The build has the form 20253.25.1021.0000."""
    build = session.call("GET", "serverInfo").succeeds()["serverInfo/productVersion@build"]
    assert re.fullmatch(r"\d{5}\.\d\d\.\d{4}\.\d{4}", build)


@fact(_INFO, Source.SAMPLES)
def test_server_info_in_lower_case(session: Session):
    """The path may be written serverinfo."""
    session.call("GET", "serverinfo").succeeds()


@fact(_INFO, Source.TSC)
def test_xml_begins_with_its_declaration(session: Session):
    """An answer begins with <?xml and has the namespace of the API."""
    content = session.call("GET", "serverInfo").succeeds().content
    assert content.startswith(b"<?xml")
    assert b"http://tableau.com/api" in content


def _own(session: Session) -> str:
    return sign_in_request(session.content_url, **session.own)


def _sign_in(session: Session, body: str | Iterator[bytes] = "", *, version: str = "") -> Answer:
    """Sign in with the token of the session, then renew the session, which has ended."""
    with session.sessions_of_its_own():
        body = body or _own(session)
        return session.call("POST", "auth/signin", body, version=version).succeeds()


@fact(_SIGN_IN, Source.TSC)
def test_sign_in_on_the_oldest_path(session: Session):
    """A token signs in on the path of version 2.4, where clients ask for the newest version."""
    answer = _sign_in(session, version=OLDEST_VERSION)
    assert answer["credentials@token"]
    found = answer["credentials/site@id"], answer["credentials/user@id"]
    assert found == (session.site, session.user)


@fact(_SIGN_IN, Source.SCHEMA)
def test_time_to_expiration(session: Session):
    """The answer names the time until the session ends, in hours, minutes and seconds."""
    lasts = _sign_in(session)["credentials@estimatedTimeToExpiration"]
    assert re.fullmatch(r"\d+:\d{1,2}:\d{1,2}", lasts)


@fact(_SIGN_IN, Source.TSC)
def test_sign_in_by_password(session: Session):
    """A user signs in with a name and a password."""
    names = "TABLEAU_USERNAME", "TABLEAU_PASSWORD"
    name, password = session.variables("password", *names)
    request = sign_in_request(session.content_url, name=name, password=password)
    with session.other(request) as other:
        assert other.site == session.site


@fact(_SIGN_IN, Source.TSC)
def test_request_in_a_namespace(session: Session):
    """The elements of a request may be in the namespace of the API."""
    named = '<tsRequest xmlns="http://tableau.com/api">'
    _sign_in(session, _own(session).replace("<tsRequest>", named))


@fact(_SIGN_IN, Source.LIVE_TESTS)
def test_request_in_chunks(session: Session):
    """The body of a request may come in chunks."""
    _sign_in(session, iter(_own(session).encode().partition(b" ")))


@fact(_SIGN_IN, Source.REFERENCE)
def test_wrong_credentials(session: Session):
    """Unknown credentials are refused with 401001."""
    for given in (_NO_TOKEN, {"name": "no-such-user", "password": "x"}):
        request = sign_in_request(session.content_url, **given)
        with session.sessions_of_its_own():
            session.call("POST", "auth/signin", request).is_refused("401001")


@fact(_SIGN_IN, Source.REFERENCE)
def test_unknown_site(session: Session):
    """A site that does not exist is refused like wrong credentials."""
    request = sign_in_request(_NO_SITE, **session.own)
    with session.sessions_of_its_own():
        session.call("POST", "auth/signin", request).is_refused("401001")


@fact(
    _SIGN_IN,
    Source.REFERENCE,
    malformed_sign_in=("An incomplete request", "<tsRequest><credentials"),
    two_kinds_of_credentials=(
        "A request with a password and a token",
        sign_in_request("", name="a", password="b", **_NO_TOKEN),
    ),
)
def test_malformed_request(session: Session, *, what: str, body: str):
    """{what} is refused with 400000."""
    session.call("POST", "auth/signin", body).is_refused("400000")


@fact(_SIGN_IN, Source.REFERENCE)
def test_incomplete_credentials(session: Session):
    """A request without credentials, or with half of them, is refused with 400000."""
    for given in ({}, {"name": "a"}, {"personalAccessTokenName": "a"}):
        request = sign_in_request(session.content_url, **given)
        session.call("POST", "auth/signin", request).is_refused("400000")


@fact(_SIGN_IN, Source.MCP)
def test_one_session_per_token(session: Session):
    """A second sign-in with a personal access token ends the first session."""
    first = session.token
    session.sign_in()
    session.call("GET", f"sites/{session.site}", token=first).is_refused("401002")


@fact("POST auth/signout", Source.REFERENCE)
def test_sign_out(session: Session):
    """Signing out is answered with 204 and ends the session."""
    with session.sessions_of_its_own():
        session.converse(("POST /auth/signout", "204"), ("GET /sites/{site}", "401002"))


@fact(_SITE, Source.TSC)
def test_header_in_any_case(session: Session):
    """The name of the header with the token may be written in any case of letters."""
    headers = {"x-tableau-auth": session.token}
    session.call("GET", f"sites/{session.site}", headers=headers).succeeds()


@fact(_SITE, Source.KNOWLEDGE_BASE, no_session=("A call without a token", "", "401000"))
@fact(_SITE, Source.REFERENCE, unknown_session=("A call with an unknown token", "a|b|c", "401002"))
def test_refused_session(session: Session, *, what: str, token: str, code: str):
    """{what} is refused with {code}."""
    session.call("GET", f"sites/{session.site}", token=token).is_refused(code)


@fact("GET sites/{site}/projects", Source.TSC)
def test_older_versions_are_served(session: Session):
    """A session works on the paths of older versions, too."""
    path = f"sites/{session.site}/projects?pageSize=1"
    for version in (OLDEST_VERSION, "3.0"):
        session.needs_version(version)
        session.call("GET", path, token=session.token, version=version).succeeds()
