"""Questions to VizQL Data Service, as a client without a library would ask them."""

from typing import Any

import requests
import tableauserverclient as tsc

from tableau_sandbox.testing import Sandbox
from tableau_sandbox_tests.samples import TIMEOUT

Json = Any


def ask(
    sandbox: Sandbox,
    server: tsc.Server | None,
    endpoint: str,
    body: Json = None,
    *,
    method: str = "POST",
    **arguments: Any,
) -> requests.Response:
    """A request to an endpoint; without a server, it has no session."""
    session = {} if server is None else {"X-Tableau-Auth": server.auth_token or ""}
    headers = {**session, **arguments.pop("headers", {})}
    url = f"{sandbox.url}/api/v1/vizql-data-service/{endpoint}"
    if body is not None:
        arguments["json"] = body
    return requests.request(method, url, headers=headers, timeout=TIMEOUT, **arguments)


def query(
    sandbox: Sandbox, server: tsc.Server, luid: str, *fields: Json, **more: Json
) -> requests.Response:
    """A query of these fields; `options` are those of the request, the rest is of the query."""
    options = {"options": more.pop("options")} if "options" in more else {}
    body = {
        "datasource": {"datasourceLuid": luid},
        "query": {"fields": list(fields), **more},
        **options,
    }
    return ask(sandbox, server, "query-datasource", body)


def count_of(sandbox: Sandbox, server: tsc.Server, luid: str, formula: str, **more: Json) -> Json:
    """The value of a calculation, or the rows of the answer if it is not one row."""
    response = query(sandbox, server, luid, {"fieldCaption": "n", "calculation": formula}, **more)
    assert response.status_code == 200, response.text
    rows = response.json()["data"]
    return rows[0]["n"] if len(rows) == 1 else rows


def refused(response: requests.Response) -> str:
    """The code of a refusal; that it suits the status is checked on the way."""
    assert response.headers["Content-Type"] == "application/json", response.text
    error = response.json()
    assert set(error) == {"errorCode", "message", "datetime"}, error
    assert error["errorCode"][:3] == str(response.status_code)
    return error["errorCode"]
