"""Errors, as recorded elsewhere."""

import json

import pytest

from tableau_pipeline.core.checkpoint import PublishMode
from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline_tests.publishing.conftest import CLEAR, fresh
from tableau_pipeline_tests.publishing.hostile import Answer
from tableau_pipeline_tests.publishing.recorded.support import ITEM, LUID, Server, error, raw

HTML = b"<!DOCTYPE html><html><head><title>Too Many Requests</title><body><p>Please wait<br></html>"
# It can be parsed, and is no answer of Tableau.
XHTML = b"<html><head><title>Too Many Requests</title></head><body/></html>"
PROBLEM = json.dumps({"errors": [{"status": "429", "code": "TooManyRequests"}]}).encode()
# What a site answers that was asked too often: Tableau's knowledge base, "concurrency limits in
# REST APIs on Tableau Cloud"; and what proxies answer while a server starts.
BUSY = [
    *((429, body) for body in (HTML, XHTML, PROBLEM, b"")),
    *((503, body) for body in (HTML, XHTML, PROBLEM, b"")),
]


def too_busy(caught: pytest.ExceptionInfo[RefreshError]) -> bool:
    return not isinstance(caught.value, RefusedError) and "too busy" in str(caught.value)


@pytest.mark.parametrize(("status", "body"), BUSY)
def test_busy_server(server: Server, status: int, body: bytes):
    """Prevents: somebody looks for a mistake in the address of a server that is too busy."""
    answer = raw(body, status=status, Content_Type="text/html", Retry_After="0")
    with server.saying("GET", ITEM, answer), pytest.raises(RefreshError) as caught:
        server.site.find_by_luid(LUID)
    assert too_busy(caught)
    assert f"({status})" in str(caught.value)
    assert "TABLEAU_SERVER_URL" not in str(caught.value)


@pytest.mark.parametrize("answer", [raw(HTML, status=503), error(503, "503000")])
def test_server_that_is_busy_with_a_request(server: Server, answer: Answer):
    """Prevents: a request that may have arrived passes for one that was refused."""
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


def test_busy_server_in_its_own_words(server: Server):
    """Prevents: the server's own code and message are not shown."""
    with (
        server.saying("GET", ITEM, error(429, "429000", "Too many requests")),
        pytest.raises(RefreshError, match=r"429000.*Too many requests") as caught,
    ):
        server.site.find_by_luid(LUID)
    assert too_busy(caught)
