"""VizQL Data Service as an ASGI application."""

import logging

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from tableau_sandbox.access import scopes_allow
from tableau_sandbox.faulty_api import query_faults
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts
from tableau_sandbox.store.records import Session
from tableau_sandbox.vds.errors import VdsError
from tableau_sandbox.vds.grammar.bodies import check_endpoint, parse_request
from tableau_sandbox.vds.schema import Endpoint
from tableau_sandbox.vds.service.answers import error_answer, json_answer
from tableau_sandbox.vds.service.endpoints import answer

PATH = "/api/v1/vizql-data-service"
SIMPLE_REQUEST = "simple-request"
SCOPE = "tableau:viz_data_service:read"
# Its calls below `/api/v1/`.
CALLS = (
    f"GET vizql-data-service/{SIMPLE_REQUEST}",
    *(f"POST vizql-data-service/{endpoint}" for endpoint in Endpoint),
)
_BODY_BYTES = 1 << 20
_logger = logging.getLogger(__name__)


class VdsApi:
    """Answers everything under `PATH`."""

    def __init__(self, services: Services):
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = HttpRequest(scope, receive)
        try:
            # A client that is still sending would see an early answer as a broken connection.
            body = await _body(request)
        except ClientDisconnect:
            return
        reply = await run_in_threadpool(self._answer, request, body)
        await reply(scope, receive, send)

    def _answer(self, request: HttpRequest, body: bytes) -> Response:
        if not self._services.options.vds:
            return PlainTextResponse("Not Found", 404)
        try:
            return self._handled(request, body)
        except VdsError as error:
            refused = error
        except Exception:
            _logger.exception("%s failed", request.method)
            refused = VdsError("500000", "The sandbox itself failed; its log shows why.")
        return error_answer(refused, now=self._services.clock())

    def _handled(self, request: HttpRequest, body: bytes) -> Response:
        path = request.scope["raw_path"].decode("ascii", "replace")
        name = path.removeprefix(PATH).strip("/")
        if name == SIMPLE_REQUEST:
            _check_method(request, "GET")
            return json_answer("ahoy")
        if name not in list(Endpoint):
            message = f"No endpoint {request.method} /vizql-data-service/v1/{name}."
            raise VdsError("404950", message)
        endpoint, schema = Endpoint(name), self._services.options.vds_schema
        check_endpoint(endpoint, schema)
        _check_method(request, "POST")
        session = self._session(request)
        if len(body) > _BODY_BYTES:
            raise VdsError("400000", f"The body of the request is larger than {_BODY_BYTES} bytes.")
        parsed = parse_request(body, endpoint, schema)
        return answer(self._services, session, endpoint, parsed, faults=query_faults(request.scope))

    def _session(self, request: HttpRequest) -> Session:
        token = request.headers.get("X-Tableau-Auth")
        if not token:
            raise VdsError("401001", "No authentication credentials were provided.")
        now = self._services.now_seconds()
        session = accounts.session(self._services.database, token, now=now)
        if session is None:
            raise VdsError("401002", "Invalid authentication credentials.")
        if session.scopes and not scopes_allow(session.scopes, (SCOPE,)):
            # Servers do not say what is missing; whoever runs a sandbox wants to know.
            _logger.warning("%s: the connected app needs %s", request.url.path, SCOPE)
            raise VdsError("401002", "Invalid authentication credentials.")
        return session


def _check_method(request: HttpRequest, allowed: str) -> None:
    if request.method != allowed:
        raise VdsError("405000", f"The method {request.method} is not allowed.")


async def _body(request: HttpRequest) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        # The rest is still read, so that the client sees the refusal, but it takes no memory.
        body += chunk[: _BODY_BYTES + 1 - len(body)]
    return bytes(body)
