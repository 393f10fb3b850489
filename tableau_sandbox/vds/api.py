"""VizQL Data Service as an ASGI application: sessions, rights, and answers in JSON."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from tableau_sandbox.access import CONNECT, QUERY_BY_API, READ, access_to, scopes_allow
from tableau_sandbox.errors import RestError, refusal
from tableau_sandbox.faults import BreakRows
from tableau_sandbox.faulty_api import query_faults
from tableau_sandbox.http.middlewares import body_of
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts
from tableau_sandbox.store.records import Datasource, Session
from tableau_sandbox.vds.model import fields_answer, read_model
from tableau_sandbox.vds.query import compute
from tableau_sandbox.vds.requests import MetadataRequest, QueryRequest, parse_request

PATH = "/api/v1/vizql-data-service"
SCOPE = "tableau:viz_data_service:read"
_METADATA, _QUERY = "read-metadata", "query-datasource"
# The calls of the service, below `/api/v1/`.
CALLS = tuple(f"POST vizql-data-service/{endpoint}" for endpoint in (_METADATA, _QUERY))
_BODY_BYTES = 1 << 20
_UNKNOWN_SESSION = ("401002", "Invalid authentication credentials.")
_FAILED = refusal("500000", "The sandbox was configured to fail here.")
_REFUSALS = {
    401: refusal(*_UNKNOWN_SESSION),
    429: refusal("429000", "Too many requests. Please retry later."),
    500: _FAILED,
    503: refusal("503804", "The session was not found."),
    504: refusal("504000", "The sandbox was configured to answer like a gateway that timed out."),
}
_logger = logging.getLogger(__name__)


class VdsApi:
    """Answers all requests under `PATH`."""

    def __init__(self, services: Services):
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            # Read the body first: if the client is still sending, an early answer looks like a
            # broken connection.
            body = await body_of(request, _BODY_BYTES)
        except ClientDisconnect:
            return
        reply = await self._services.in_thread(self._answer, request, body)
        await reply(scope, receive, send)

    def _answer(self, request: Request, body: bytes) -> Response:
        if not self._services.options.vds:
            return PlainTextResponse("Not Found", 404)
        try:
            return _json_answer(self._handled(request, body))
        except RestError as error:
            refused = error
        except Exception:
            _logger.exception("%s failed", request.method)
            refused = refusal("500000", "The sandbox itself failed; its log shows why.")
        return _written(refused, self._services.clock())

    def _handled(self, request: Request, body: bytes) -> Any:
        path = request.scope["raw_path"].decode("ascii", "replace")
        name = path.removeprefix(PATH).strip("/")
        if name not in (_METADATA, _QUERY):
            message = f"No endpoint {request.method} /vizql-data-service/v1/{name}."
            raise refusal("404950", message)
        if request.method != "POST":
            raise refusal("405000", f"The method {request.method} is not allowed.")
        session = self._session(request)
        if len(body) > _BODY_BYTES:
            raise refusal("400000", f"The body of the request is larger than {_BODY_BYTES} bytes.")
        if name == _METADATA:
            return self._metadata(session, body)
        return self._rows(request, session, body)

    def _metadata(self, session: Session, body: bytes) -> Any:
        asked = parse_request(body, MetadataRequest, self._services.options.vds_schema)
        source = self._source(session, asked.datasource.datasource_luid)
        return fields_answer(read_model(source), hidden=asked.options.include_hidden_fields)

    def _rows(self, request: Request, session: Session, body: bytes) -> Any:
        asked = parse_request(body, QueryRequest, self._services.options.vds_schema)
        source = self._source(session, asked.datasource.datasource_luid)
        faults = query_faults(request.scope)
        data: list[Any] = compute(self._services, source, asked, faults)
        if asked.options.return_format == "OBJECTS":
            keys = [field.key for field in asked.query.fields]
            data = [dict(zip(keys, row, strict=True)) for row in data]
        if any(isinstance(fault, BreakRows) for fault in faults):
            # Real servers send rows before the last row is ready, so an error may follow the status
            # 200.
            return {"data": data, "error": _error(_FAILED, self._services.clock())}
        return {"data": data}

    def _session(self, request: Request) -> Session:
        token = request.headers.get("X-Tableau-Auth")
        if not token:
            raise refusal("401001", "No authentication credentials were provided.")
        now = self._services.now_seconds()
        session = accounts.session(self._services.database, token, now=now)
        if session is None:
            raise refusal(*_UNKNOWN_SESSION)
        if session.scopes and not scopes_allow(session.scopes, (SCOPE,)):
            # Servers do not reveal the missing scope, but users of a sandbox need to know it.
            _logger.warning("%s: the connected app needs %s", request.url.path, SCOPE)
            raise refusal(*_UNKNOWN_SESSION)
        return session

    def _source(self, session: Session, luid: str) -> Datasource:
        """Return a data source that the user may query.

        Raises:
            RestError: 404937, the user sees no such data source; 403800, the user may not query it.
        """
        source = self._services.database.find(Datasource, site=session.site.luid, luid=luid)
        access = access_to(self._services.database, session.site.luid)
        if source is None or not access.may(session.user, READ, source):
            raise refusal("404937", "Datasource not found.")
        chosen = self._services.options.vds_access
        may_query = chosen == "everybody"
        if chosen == "capability":
            may_query = access.may(session.user, QUERY_BY_API, source)
        if not may_query or not access.may(session.user, CONNECT, source):
            raise refusal("403800", "The user lacks the capability API Access.")
        return source


def write_vds_refusal(services: Services, request: Request, status: int) -> Response:
    """Write a refusal with the status that a fault demands."""
    return _written(_REFUSALS[status], services.clock())


def _written(error: RestError, now: datetime) -> Response:
    return _json_answer(_error(error, now), error.status)


def _error(error: RestError, now: datetime) -> dict[str, Any]:
    moment = now.astimezone(UTC)
    # Real servers write nanoseconds.
    stamp = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06}000Z"
    return {"errorCode": error.code, "message": error.detail, "datetime": stamp}


def _json_answer(value: Any, status: int = 200) -> Response:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Response(text, status, media_type="application/json")
