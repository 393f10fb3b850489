"""Answers about the server, and answers to a sign-in, modelled on public recordings."""

from typing import Any

import pytest

from tableau_pipeline.errors import CredentialsError, RefreshError, RefusedError
from tableau_pipeline.publishing import access_checks
from tableau_pipeline_tests.publishing import hostile
from tableau_pipeline_tests.publishing.conftest import SignIn
from tableau_pipeline_tests.publishing.recorded.support import LUID, OTHER, Server, error, raw, xml

SPACE = 'xmlns="http://tableau.com/api"'
INFO = (
    '<serverInfo><productVersion build="{}">{}</productVersion>'
    "<restApiVersion>{}</restApiVersion>{}</serverInfo>"
)


@pytest.mark.parametrize(
    ("body", "product", "rest"),
    [
        # TSC, server_info_get.xml.
        (INFO.format("10100.16.1024.2100", "10.1.0", "2.4", ""), "10.1.0", "2.4"),
        # REST reference, Server Info; Migration SDK: a build of Cloud may have a word as its
        # version.
        (INFO.format("20253.25.1002", "2025.3.0", "3.27",
                     "<platform>cloud</platform><serverSettings><oAuthEnabled>true</oAuthEnabled>"
                     "</serverSettings>"), "2025.3.0", "3.27"),
        (INFO.format("near.26.0101.0001", "near", "3.30", ""), "near", "3.30"),
        (INFO.format("", "", "3.27", ""), "None", "3.27"),
    ],
)  # fmt: skip
def test_server_info(server: Server, sign_in: SignIn, body: str, product: str, rest: str):
    """Prevents: the pipeline cannot use a server whose version is a word, or is missing."""
    with (
        server.saying("GET", "serverInfo", xml(body)),
        server.saying("POST", "auth/signin", xml(CREDENTIALS)),
        sign_in(url=server.front.url) as site,
    ):
        assert site.tsc.version == rest
        about = next(iter(access_checks.on_site(site)))
    assert about.text.endswith(f"Tableau {product}, REST {rest}")


@pytest.mark.parametrize(
    "body",
    [INFO.format("1", "2025.3", "", ""), INFO.format("1", "2025.3", "new", ""), "<serverInfo/>"],
)
def test_server_without_a_version(server: Server, sign_in: SignIn, body: str):
    """Prevents: a server of an unknown version passes for a server of ten years ago."""
    with (
        server.saying("GET", "serverInfo", xml(body)),
        pytest.raises(RefreshError, match="does not answer like a Tableau Server"),
        sign_in(url=server.front.url),
    ):
        pass


# TSC, auth_sign_in.xml.
WHO = f'<site id="{OTHER}" contentUrl="Samples"/><user id="{LUID}"/>'
CREDENTIALS = f'<credentials token="t0ken">{WHO}</credentials>'
# REST reference, Sign In, since 3.20: how long the session lives; and invented attributes.
LATER = (
    '<credentials token="t0ken" estimatedTimeToExpiration="239:59:59" new="1">'
    f'<site id="{OTHER}" contentUrl="" name="x"/><user id="{LUID}"/><news/></credentials>'
)
WHOLE = f'<?xml version="1.0" encoding="UTF-8"?><tsResponse {SPACE}>{{}}</tsResponse>'


@pytest.mark.parametrize(
    "body",
    [
        WHOLE.format(CREDENTIALS).encode(),
        WHOLE.format(LATER).encode(),
        # TSC, assets of "all fields": a prefix. Servers on Windows: a byte order mark.
        f'<ns0:tsResponse xmlns:ns0="http://tableau.com/api">{CREDENTIALS}</ns0:tsResponse>'.replace(
            "<cred", "<ns0:cred").replace("</cred", "</ns0:cred").replace("<site", "<ns0:site")
            .replace("<user", "<ns0:user").encode(),
        b"\xef\xbb\xbf" + WHOLE.format(CREDENTIALS).encode(),
        WHOLE.format(CREDENTIALS).partition("?>")[2].encode(),
    ],
    ids=["plain", "later", "prefix", "mark", "no declaration"],
)  # fmt: skip
def test_sign_in(server: Server, sign_in: SignIn, body: bytes):
    """Prevents: sign-in fails because the answer has the same XML in another notation."""
    with (
        server.saying("POST", "auth/signin", raw(body)),
        sign_in(url=server.front.url) as site,
    ):
        assert (site.user_id, site.tsc.site_id, site.tsc.auth_token) == (LUID, OTHER, "t0ken")


REFUSED = '<error code="401001"><summary>Signin Error</summary><detail>{}</detail></error>'


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        # TSC, auth_sign_in_error.xml; for a connected app, TSC, issue 1581.
        (error(401, "401001", "Error signing in"), CredentialsError, "Check TABLEAU_USERNAME"),
        (error(401, "401002", "x"), RefreshError, "401002"),
        (error(404, "404000", "Site not found"), RefusedError, "404000 Refused: Site not found"),
        # REST reference, Sign In: the URL lacks the name of the pod, or "https".
        (error(405, "405000", "POST"), RefusedError, "405000"),
        (raw(REFUSED.format("no").encode(), status=401), RefreshError, "does not answer like"),
        (raw(b'{"error": "unauthorized"}', status=401), RefreshError, "does not answer like"),
        (
            raw(b"<html><body>Sign in<br></body></html>", status=401),
            RefreshError,
            "does not answer",
        ),
        (raw(b"", status=401), RefreshError, "does not answer like a Tableau Server"),
        (xml(""), RefreshError, "has no <site>"),
        (xml('<credentials token="t0ken"><site id="1"/></credentials>'), RefreshError, "no <user>"),
    ],
)
def test_refused(server: Server, sign_in: SignIn, answer: Any, kind: type, said: str):
    """Prevents: the error does not say why a user cannot sign in."""
    with (
        server.saying("POST", "auth/signin", answer),
        pytest.raises(kind, match=said),
        sign_in(url=server.front.url),
    ):
        pass


def test_site_on_another_pod(server: Server, sign_in: SignIn):
    """Prevents: secrets follow Cloud's redirect to another pod, or no error names that pod."""
    with (
        server.saying(
            "POST", "auth/signin", hostile.redirect(301, "https://prod-uk-a.example.com")
        ),
        pytest.raises(RefreshError, match=r"requests on to https://prod-uk-a\.example\.com"),
        sign_in(url=server.front.url),
    ):
        pass
