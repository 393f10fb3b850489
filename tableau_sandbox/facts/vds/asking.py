"""Requests to VizQL Data Service, and what a fact may expect of their answers."""

import json
from typing import Any

from tableau_sandbox.facts.answer import Answer, Deviation, NotShown, expect_that
from tableau_sandbox.facts.scene import Scene

_VERSION = "v1"


def call(
    scene: Scene, endpoint: str, body: Any = None, *, method: str = "POST", token: str | None = None
) -> Answer:
    """Send a request to an endpoint; text is sent as it is, and other values as JSON.

    Args:
        scene: the server.
        endpoint: the last part of the path.
        body: what is sent.
        method: the verb.
        token: of another session than the scene's; empty for none.

    Raises:
        NotShown: the server does not have the service.
    """
    found = scene.call("GET", _path("simple-request"), version=_VERSION)
    if found.status != 200:
        raise NotShown("the server has no VizQL Data Service")
    return scene.call(
        method,
        _path(endpoint),
        body if isinstance(body, str) else json.dumps(body),
        token=scene.token if token is None else token,
        version=_VERSION,
        headers={"Content-Type": "application/json"},
    )


def about(scene: Scene, endpoint: str, luid: str) -> Any:
    """Return the answer of an endpoint that needs no more than a data source.

    Raises:
        NotShown: the server has no such endpoint.
        Deviation: it is refused.
    """
    answer = call(scene, endpoint, {"datasource": {"datasourceLuid": luid}})
    if answer.status == 404:
        raise NotShown(f"the server's VizQL Data Service has no {endpoint}")
    return answer.succeeds(200).json()


def query(scene: Scene, luid: str, *fields: dict[str, Any], **more: Any) -> Answer:
    """Send a query of some fields; `more` are further keys of the request."""
    request = {"datasource": {"datasourceLuid": luid}, "query": {"fields": fields}, **more}
    return call(scene, "query-datasource", request)


def rows(answer: Answer) -> list[Any]:
    """Return the rows of an answer.

    Raises:
        Deviation: it has none, or an error beside them.
    """
    found = answer.succeeds(200).json()
    expect_that(isinstance(found, dict) and set(found) == {"data"}, "rows", answer)
    return found["data"]


def refused(answer: Answer, *codes: str) -> dict[str, Any]:
    """Return an error that has one of these codes, and the status of it.

    Raises:
        Deviation: it is something else.
    """
    error = answer.json()
    code = error.get("errorCode") if isinstance(error, dict) else None
    if code not in codes:
        raise Deviation(f"an error {' or '.join(codes)}", f"{answer.status} with the error {code}")
    expect_that(code.startswith(str(answer.status)), f"the status of {code}", answer.status)
    return error


def _path(endpoint: str) -> str:
    return f"vizql-data-service/{endpoint}"
