"""Requests to VizQL Data Service, and checks of their answers."""

import json
from typing import Any

import pytest

from tableau_sandbox_tests.contract.session import Answer, Session


def call(
    session: Session, endpoint: str, body: Any, *, method: str = "POST", token: str | None = None
) -> Answer:
    """Send a body, as text or as JSON; `token` may be empty, or belong to another session."""
    answer = session.call(
        method,
        f"vizql-data-service/{endpoint}",
        body if isinstance(body, str) else json.dumps(body),
        token=session.token if token is None else token,
        version="v1",
        headers={"Content-Type": "application/json"},
    )
    if answer.status == 404 and b'"errorCode"' not in answer.content:
        pytest.skip("the server has no VizQL Data Service")
    return answer


def fields(session: Session, luid: str) -> list[dict[str, Any]]:
    """Return the fields of a data source, as the service lists them."""
    answer = call(session, "read-metadata", {"datasource": {"datasourceLuid": luid}})
    return answer.succeeds().json()["data"]


def query(session: Session, luid: str, *asked: str | dict[str, Any], **more: Any) -> Answer:
    """Send a query of fields or formulas; `more` adds keys to the body.

    The formula at position 0 is called n0, the formula at position 1 is called n1, and so on.
    """
    named = [
        {"fieldCaption": f"n{number}", "calculation": each} if isinstance(each, str) else each
        for number, each in enumerate(asked)
    ]
    body = {"datasource": {"datasourceLuid": luid}, "query": {"fields": named}, **more}
    return call(session, "query-datasource", body)


def values(answer: Answer) -> list[Any]:
    """Return the values of formulas; the list is empty if the answer has no row."""
    found = answer.succeeds().json()
    assert isinstance(found, dict), answer
    assert set(found) == {"data"}, answer
    rows = found["data"]
    assert len(rows) < 2, answer
    return [row[f"n{number}"] for row in rows for number in range(len(row))]


def refused(answer: Answer, codes: str) -> dict[str, Any]:
    """Check that an answer is an error with one of these codes, and return its JSON."""
    answer.is_refused(codes)
    return answer.json()
