"""Errors of Tableau and of gateways, modelled on public recordings."""

import json
from pathlib import Path

import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.errors import (
    NotAcceptedError,
    RefreshError,
    RefusedError,
    UnreachableError,
)
from tableau_pipeline.publishing import rest
from tableau_pipeline_tests.publishing.conftest import CLEAR, fresh
from tableau_pipeline_tests.publishing.hostile import Answer, Call
from tableau_pipeline_tests.publishing.recorded.support import ITEM, LUID, Server, error, raw, xml
from tableau_pipeline_tests.publishing.recorded.test_datasources import BY_ID, NONE

HTML = b"<!DOCTYPE html><html><head><title>Too Many Requests</title><body><p>Please wait<br></html>"
# This page is valid XML, but no answer of Tableau.
XHTML = b"<html><head><title>Too Many Requests</title></head><body/></html>"
PROBLEM = json.dumps({"errors": [{"status": "429", "code": "TooManyRequests"}]}).encode()
# A site answers 429 to a client that asks too often: see Tableau's knowledge base, "concurrency
# limits in REST APIs on Tableau Cloud". A proxy answers 503 while its server starts.
BUSY = [
    *((429, body) for body in (HTML, XHTML, PROBLEM, b"")),
    *((503, body) for body in (HTML, XHTML, PROBLEM, b"")),
]


def too_busy(caught: pytest.ExceptionInfo[RefreshError]) -> bool:
    return not isinstance(caught.value, RefusedError) and "too busy" in str(caught.value)


@pytest.mark.parametrize(("status", "body"), BUSY)
def test_busy_server(server: Server, status: int, body: bytes):
    """Prevents: an error blames the server's address although the server is merely busy."""
    answer = raw(body, status=status, Content_Type="text/html", Retry_After="0")
    with server.saying("GET", ITEM, answer), pytest.raises(RefreshError) as caught:
        server.site.find_by_luid(LUID)
    assert too_busy(caught)
    assert f"({status})" in str(caught.value)
    assert "TABLEAU_SERVER_URL" not in str(caught.value)


@pytest.mark.parametrize("answer", [raw(HTML, status=503), error(503, "503000")])
def test_server_that_is_busy_with_a_request(server: Server, answer: Answer):
    """Prevents: a request that may have arrived passes for a refused request."""
    with (
        server.saying("PATCH", f"{ITEM}/data", answer),
        server.saying("POST", "sites/[^/]+/datasources", answer),
    ):
        with pytest.raises(RefreshError) as caught:
            server.site.update(LUID, batch=CLEAR, upload=None, request_id=fresh())
        assert too_busy(caught)
        with pytest.raises(RefreshError) as caught:
            server.site.publish("1:2", name="x", project_id=LUID, mode=PublishMode.CREATE)
        assert too_busy(caught)


@pytest.mark.parametrize("answer", [raw(HTML, status=429), error(429, "429000")])
def test_server_that_turns_requests_away(server: Server, answer: Answer):
    """Prevents: a request that the server turned away counts as if it may still take effect."""
    with (
        server.saying("PATCH", f"{ITEM}/data", answer),
        server.saying("POST", "sites/[^/]+/datasources", answer),
    ):
        with pytest.raises(NotAcceptedError):
            server.site.update(LUID, batch=CLEAR, upload=None, request_id=fresh())
        with pytest.raises(NotAcceptedError):
            server.site.publish("1:2", name="x", project_id=LUID, mode=PublishMode.CREATE)


@pytest.mark.parametrize("status", [407, 413, 429])
def test_update_that_is_turned_away_when_it_is_repeated(server: Server, status: int):
    """Prevents: an update that has arrived counts as refused because its repeat was refused."""
    answers = iter([raw(HTML, status=502)])

    def answer(call: Call) -> None:
        next(answers, raw(HTML, status=status))(call)

    with (
        server.saying("PATCH", f"{ITEM}/data", answer) as asked,
        pytest.raises(UnreachableError, match=f"answered {status} when asked again"),
    ):
        server.site.update(LUID, batch=CLEAR, upload=None, request_id=fresh())
    assert len(asked) >= 2


def test_busy_server_in_its_own_words(server: Server):
    """Prevents: the error of a busy server does not show the server's own code and message."""
    with (
        server.saying("GET", ITEM, error(429, "429000", "Too many requests")),
        pytest.raises(RefreshError, match=r"429000.*Too many requests") as caught,
    ):
        server.site.find_by_luid(LUID)
    assert too_busy(caught)


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        # rest-api-samples, issue 95: the user sees the data source in lists, but may not view its
        # project.
        ("ann isn't authorised to query datasource 1", "View and Overwrite.*View on its project"),
        ("The user 'ann' may not 'Read' 'Sales'.", "the capability View on it"),
        ("ann lacks \u201cWrite\u201d on Sales", "the capability Overwrite on it"),
        ("ann lacks VizqlDataApiAccess", "the capability API Access on it"),
        ("You may not Read or Write about Delete", "View and Overwrite.*View on its project"),
    ],
)
def test_what_a_user_lacks(server: Server, said: str, remedy: str):
    """Prevents: an error asks for the wrong capability, and granting it does not help."""
    with (
        server.saying("GET", ITEM, error(403, "403004", said)),
        pytest.raises(RefusedError, match=remedy),
    ):
        server.site.find_by_luid(LUID)


@pytest.mark.parametrize(
    ("code", "said", "remedy"),
    [
        # REST reference, Download Data Source.
        ("403028", "no", "View and Download Data Source on it, and View on its project"),
        ("403004", "no", "View and Download Data Source on it, and View on its project"),
        (
            "403004",
            "The user 'ann' may not 'ExportXml' 'Sales'.",
            "capability Download Data Source",
        ),
    ],
)
def test_download_that_a_user_may_not_have(
    server: Server, tmp_path: Path, code: str, said: str, remedy: str
):
    """Prevents: an error asks for Overwrite although the user lacks Download Data Source."""
    with (
        server.saying("GET", f"{ITEM}/content", error(403, code, said)),
        pytest.raises(RefusedError, match=remedy),
    ):
        server.site.download(LUID, tmp_path, limit=1)


def test_conflict_of_an_update(server: Server):
    """Prevents: an error about an update asks the user to rename a data source in vain."""
    with (
        server.saying("PATCH", f"{ITEM}/data", error(409, "409015", "no")),
        pytest.raises(RefusedError) as caught,
    ):
        server.site.update(LUID, batch=CLEAR, upload=None, request_id=fresh())
    assert "409015" in str(caught.value)
    assert "Rename" not in str(caught.value)


# TSC, exceptions.py: answers that gateways and Tableau's older services send instead of an error.
ODD: dict[str, tuple[bytes, str]] = {
    "html": (HTML, "does not answer like a Tableau Server"),
    "json": (PROBLEM, "does not answer like a Tableau Server"),
    "nothing": (b"", "does not answer like a Tableau Server"),
    "xml of something else": (XHTML, "does not answer like a Tableau Server"),
    "no code": (
        b'<tsResponse xmlns="http://tableau.com/api"><error><summary>a</summary></error>'
        b"</tsResponse>",
        "does not answer like a Tableau Server",
    ),
    "no namespace": (
        b'<tsResponse><error code="400003"><summary>a</summary><detail>b</detail></error>'
        b"</tsResponse>",
        "does not answer like a Tableau Server",
    ),
    "a prefix": (
        b'<ns0:tsResponse xmlns:ns0="http://tableau.com/api"><ns0:error code="400003">'
        b"<ns0:summary>Bad Request</ns0:summary><ns0:detail>Because</ns0:detail></ns0:error>"
        b"</ns0:tsResponse>",
        "400003 Bad Request: Because",
    ),
    "a mark of the byte order": (
        b'\xef\xbb\xbf<?xml version="1.0"?><tsResponse xmlns="http://tableau.com/api">'
        b'<error code="400003"><summary>Bad Request</summary><detail>Because</detail></error>'
        b"</tsResponse>",
        "400003 Bad Request: Because",
    ),
    "empty words": (
        b'<tsResponse xmlns="http://tableau.com/api"><error code="400003"><summary/><detail/>'
        b"</error></tsResponse>",
        "400003",
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_error_in_another_form(server: Server, case: str):
    """Prevents: a gateway's page passes for Tableau's refusal, or a refusal is not recognized."""
    body, said = ODD[case]
    with (
        server.saying("GET", ITEM, raw(body, status=400)),
        pytest.raises(RefreshError, match=said) as caught,
    ):
        server.site.find_by_luid(LUID)
    assert isinstance(caught.value, RefusedError) == ("400003" in said)


@pytest.mark.parametrize(
    ("status", "said"), [(500, "an error of its own"), (502, "502"), (504, "504")]
)
def test_gateway_that_fails(server: Server, status: int, said: str):
    """Prevents: a gateway's error page passes for an answer of Tableau, or for a refusal."""
    with (
        server.saying("GET", ITEM, raw(HTML, status=status, Content_Type="text/html")),
        pytest.raises(RefreshError, match=said) as caught,
    ):
        server.site.find_by_luid(LUID)
    assert not isinstance(caught.value, RefusedError)


def test_server_that_asks_to_wait_for_long(server: Server):
    """Prevents: a refresh sleeps for half an hour because a busy server asks for such a wait."""
    answer = raw(HTML, status=429, Retry_After="1740")
    with server.saying("GET", ITEM, answer) as asked, pytest.raises(RefreshError) as caught:
        server.site.find_by_luid(LUID)
    assert len(asked) == 1
    assert too_busy(caught)


def test_a_mistake_of_ours(server: Server, monkeypatch: pytest.MonkeyPatch):
    """Prevents: a bug of the pipeline passes for a server error, and the call is retried."""
    monkeypatch.setattr(rest, "valid_time", None)
    with (
        server.saying("GET", ITEM, xml(BY_ID)),
        server.saying("GET", f"{ITEM}/revisions", NONE),
        pytest.raises(TypeError, match="not callable"),
    ):
        server.site.find_by_luid(LUID)
