"""Requests to Tableau's VizQL Data Service (VDS), which answers questions about published data.

It has paths, errors and a version of its own, and uses the session of the REST API. Nothing tells
which version it has, so whoever needs something new asks for it, and gets `NotUnderstoodError`.
"""

from typing import Any, cast

import requests
import tableauserverclient as TSC
from urllib3.util import Retry

from tableau_pipeline.errors import RefreshError
from tableau_pipeline.publishing.session.secrets import Secrets
from tableau_pipeline.publishing.session.wire import WireAdapter
from tableau_pipeline.publishing.translate_errors import SESSION_GONE

_BASE = "api/v1/vizql-data-service"
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
        RefreshError: the service is not there.
        requests.RequestException: it did not answer.
        TSC.FailedSignInError: the session has ended, or does not include the service.
    """
    base = f"{tsc.server_address}/{_BASE}/"
    session = tsc.session
    # Requests go where the others go, and are repeated by other rules.
    wire = cast(WireAdapter, session.get_adapter(base)).wire
    session.mount(base, WireAdapter(wire, max_retries=_RETRY))
    try:
        response = session.post(
            f"{base}{endpoint}",
            json=body,
            headers={"X-Tableau-Auth": str(tsc.auth_token)},
            **tsc.http_options,
        )
        answer = response.json()
    except (LookupError, RecursionError, requests.JSONDecodeError) as error:
        # Gateways answer in HTML, servers without the service with the page of their web client.
        raise RefreshError(
            f"no answer of a VizQL Data Service, but status {response.status_code} and "
            f"{wire.secrets.excerpt(response.content)}"
        ) from error
    # An error that comes up after the first row ends a body whose status says that all is well.
    error = answer if not response.ok else answer.get("error") if isinstance(answer, dict) else None
    if error is None:
        return answer
    return _failed(error, response, wire.secrets)


def _failed(error: Any, response: requests.Response, secrets: Secrets) -> Any:
    fields = error if isinstance(error, dict) else {}
    code = secrets.message(str(fields.get("errorCode", "")))
    message = secrets.message(str(fields.get("message", "no message")))
    if code == _EMPTY:
        return {"data": []}
    if code in SESSION_GONE:
        raise TSC.FailedSignInError(code, "Unauthorized", message, response.url)
    found = f"the VizQL Data Service answered {code or response.status_code}: {message}"
    if remedy := _REMEDIES.get(code):
        found = f"{found} ({remedy})"
    raise NotUnderstoodError(found) if code in _NOT_UNDERSTOOD else RefreshError(found)
