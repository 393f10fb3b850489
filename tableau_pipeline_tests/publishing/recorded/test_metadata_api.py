"""Answers of the Metadata API to a question about data sources."""

import json
from typing import Any

import pytest
import requests

from tableau_pipeline.errors import RefreshError, RefusedError
from tableau_pipeline.publishing.metadata_api import metadata_ids
from tableau_pipeline_tests.publishing.recorded.support import LUID, OTHER, Server, raw

TIMEOUT = 10
ID = "0bf95f1e-80d1-1887-692b-6994fee4453d"


def asked(server: Server, body: Any, *, status: int = 200) -> Any:
    """Ask for the ids of two data sources; the server answers with the body."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    said = raw(content, status=status, Content_Type="application/json")
    with server.saying("POST", "graphql", said):
        return metadata_ids(server.site, [LUID, OTHER])


def test_what_it_knows(server: Server):
    """Prevents: a data source that the API does not know yet hides the ids of the others."""
    found = [{"id": ID, "luid": LUID}, {"id": None, "luid": OTHER}, {"id": ID}, None]
    assert asked(server, {"data": {"publishedDatasources": found}}) == {LUID: ID}


@pytest.mark.parametrize("status", [400, 403, 404])
def test_a_site_without_it(server: Server, status: int):
    """Prevents: an error does not name the remedy for a server that lacks the Metadata API."""
    with pytest.raises(RefusedError, match=r"lineage: \{datasource: luid\}"):
        asked(server, b"<html>Not found</html>", status=status)


def test_a_session_that_has_ended(server: Server):
    """Prevents: the look-up of ids fails because the session has ended."""
    ended = str(server.site.tsc.auth_token)
    url = f"{server.front.url}/api/{server.site.tsc.version}/auth/signout"
    requests.post(url, headers={"X-Tableau-Auth": ended}, timeout=TIMEOUT).raise_for_status()
    assert metadata_ids(server.site, [LUID]) == {}
    assert server.site.tsc.auth_token != ended


@pytest.mark.parametrize(
    "body",
    [
        {"errors": [{"message": "Showing partial results"}]},
        {"data": None},
        {"data": {"publishedDatasources": None}},
        [],
        b"<html>Sign in</html>",
    ],
)
def test_no_answer(server: Server, body: Any):
    """Prevents: an error of the API passes for a data source that the API does not know."""
    with pytest.raises(RefreshError, match="Asking the Metadata API for data sources failed"):
        asked(server, body)
