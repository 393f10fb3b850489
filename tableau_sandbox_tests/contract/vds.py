"""Requests to VizQL Data Service, and what a fact may expect of their answers."""

import json
from typing import Any

import pytest

from tableau_sandbox_tests.contract.answer import Answer
from tableau_sandbox_tests.contract.session import Session

_VERSION = "v1"


def call(
    session: Session,
    endpoint: str,
    body: Any = None,
    *,
    method: str = "POST",
    token: str | None = None,
) -> Answer:
    """Send a request to an endpoint; text is sent as it is, and other values as JSON.

    Args:
        session: the server.
        endpoint: the last part of the path.
        body: what is sent.
        method: the verb.
        token: of another session than the session's; empty for none.
    """
    found = session.call("GET", _path("simple-request"), version=_VERSION)
    if found.status == 404:
        pytest.skip("the server has no VizQL Data Service")
    return session.call(
        method,
        _path(endpoint),
        body if isinstance(body, str) else json.dumps(body),
        token=session.token if token is None else token,
        version=_VERSION,
        headers={"Content-Type": "application/json"},
    )


def about(session: Session, endpoint: str, luid: str) -> Any:
    """Return the answer of an endpoint that needs no more than a data source."""
    answer = call(session, endpoint, {"datasource": {"datasourceLuid": luid}})
    if answer.status == 404:
        pytest.skip(f"the server's VizQL Data Service has no {endpoint}")
    return answer.succeeds().json()


def query(session: Session, luid: str, *fields: dict[str, Any], **more: Any) -> Answer:
    """Send a query of some fields; `more` are further keys of the request."""
    request = {"datasource": {"datasourceLuid": luid}, "query": {"fields": fields}, **more}
    return call(session, "query-datasource", request)


def rows(answer: Answer) -> list[Any]:
    """Return the rows of an answer."""
    found = answer.succeeds().json()
    assert isinstance(found, dict), answer
    assert set(found) == {"data"}, answer
    return found["data"]


def refused(answer: Answer, *codes: str) -> dict[str, Any]:
    """Return an error that has one of these codes, and the status of it."""
    error = answer.json()
    code = error.get("errorCode") if isinstance(error, dict) else None
    assert code in codes, f"{answer.status} with the error {code}"
    assert code.startswith(str(answer.status)), f"{answer.status} with the error {code}"
    return error


def _path(endpoint: str) -> str:
    return f"vizql-data-service/{endpoint}"
