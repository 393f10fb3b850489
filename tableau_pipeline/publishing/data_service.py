"""Requests to Tableau's VizQL Data Service (VDS), which answers questions about published data.

It has paths, errors and a version of its own, and uses the session of the REST API. Nothing tells
which version it has, so whoever needs something new asks for it, and gets `NotUnderstoodError`.
"""

from typing import Any

import requests
import tableauserverclient as TSC
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.translate_errors import SESSION_GONE

_BASE = "api/v1/vizql-data-service"
# Seconds to connect, and to wait for an answer. Counting takes the server a moment.
_TIMEOUT = (30, 300)
# All requests only read, so they may be repeated. Not after 429: that is a budget for an hour.
_RETRY = Retry(
    total=3,
    allowed_methods={"POST"},
    status_forcelist={502, 503, 504},
    backoff_factor=0.5,
    raise_on_status=False,
    respect_retry_after_header=False,
)
# The body, a formula or a field is not what this version of the service knows.
_NOT_UNDERSTOOD = frozenset({"400800", "400802", "400803", "404934", "404935", "501000"})
_REMEDIES = {
    "403800": "this user needs the capability API Access on the data source",
    "404937": "the data source is gone, or this user may not see it",
    "404950": "the server is too old for that",
    "429000": "the site's budget of queries is spent",
}
# The answer to a question about no rows, in some versions.
_EMPTY = "500810"


class NotUnderstoodError(RefreshError):
    """The service does not know what was asked for, or this version of it does not."""


def ask(tsc: TSC.Server, endpoint: str, body: dict[str, Any]) -> Any:
    """Send a request to an endpoint of the service, and return its answer.

    Raises:
        NotUnderstoodError: the request itself was refused.
        RefreshError: the service is not there, or did not answer.
        TSC.FailedSignInError: the session has ended, or does not include the service.
    """
    base = f"{tsc.server_address}/{_BASE}/"
    session = tsc.session
    session.mount(base, HTTPAdapter(max_retries=_RETRY))
    try:
        response = session.post(
            f"{base}{endpoint}",
            json=body,
            headers={"X-Tableau-Auth": str(tsc.auth_token)},
            timeout=_TIMEOUT,
            # Elsewhere the token would be somebody else's.
            allow_redirects=False,
            **tsc.http_options,
        )
        answer = response.json()
    except requests.JSONDecodeError as error:
        # Gateways answer in HTML, servers without the service with the page of their web client.
        raise RefreshError(
            f"no answer of a VizQL Data Service, but status {response.status_code}"
        ) from error
    except requests.RequestException as error:
        raise RefreshError(f"the VizQL Data Service did not answer: {error}") from error
    # An error that comes up after the first row ends a body whose status says that all is well.
    error = answer if not response.ok else answer.get("error") if isinstance(answer, dict) else None
    if error is None:
        return answer
    return _failed(error, response)


def _failed(error: Any, response: requests.Response) -> Any:
    fields = error if isinstance(error, dict) else {}
    code, message = str(fields.get("errorCode", "")), str(fields.get("message", "no message"))
    if code == _EMPTY:
        return {"data": []}
    if code in SESSION_GONE:
        raise TSC.FailedSignInError(code, "Unauthorized", message, response.url)
    found = f"the VizQL Data Service answered {code or response.status_code}: {message}"
    if remedy := _REMEDIES.get(code):
        found = f"{found} ({remedy})"
    raise NotUnderstoodError(found) if code in _NOT_UNDERSTOOD else RefreshError(found)
