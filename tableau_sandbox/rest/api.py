"""The REST API as an ASGI application."""

import logging
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tableau_sandbox.access import scopes_allow
from tableau_sandbox.errors import RestError, malformed, refusal
from tableau_sandbox.rest.answers import Reply, write_error, write_reply
from tableau_sandbox.rest.requests import Attachment, Call, read_multipart
from tableau_sandbox.rest.router import Route, find_route
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts
from tableau_sandbox.store.records import Session, Site

_logger = logging.getLogger(__name__)


class RestApi:
    """Answers all requests under `/api`."""

    def __init__(self, services: Services, routes: tuple[Route, ...]):
        self._services = services
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        stream = request.stream()
        try:
            answer = await self._answer(request, stream)
            # Read the rest of the body first: if the client is still sending, an early answer looks
            # like a broken connection.
            async for _ in stream:
                pass
        except ClientDisconnect:
            return
        await answer(scope, receive, send)

    async def _answer(self, request: Request, stream: AsyncIterator[bytes]) -> Response:
        version = self._services.options.rest_version
        try:
            reply = await self._handle(request, stream)
        except RestError as error:
            return write_error(error, rest_version=version)
        except ClientDisconnect:
            # The client has gone, so write no answer.
            raise
        except Exception:
            _logger.exception("%s failed", request.method)
            error = refusal("500000", "The sandbox itself failed; its log shows why.")
            return write_error(error, rest_version=version)
        if isinstance(reply, Response):
            return reply
        return write_reply(reply, rest_version=version)

    async def _handle(self, request: Request, stream: AsyncIterator[bytes]) -> Reply | Response:
        route, path = find_route(
            self._routes,
            method=request.method,
            raw_path=request.scope["raw_path"],
            newest=self._services.options.rest_version,
        )
        session = None
        if route.signed_in:
            # Authenticate before reading the body: without a session, no client may write to the
            # disk.
            session = await self._services.in_thread(self._authenticate, request, path.get("site"))
            _check_scopes(session, route)
        body, attachment = await self._read_body(request, stream, route)
        call = Call(
            path=path,
            query=dict(request.query_params),
            body=body,
            attachment=attachment,
            headers=request.headers,
            base_url=f"{request.url.scheme}://{request.url.netloc}",
            opened=session,
        )
        try:
            return await self._services.in_thread(self._call, route, call)
        finally:
            if attachment:
                # If the handler keeps the file, it has already moved the file.
                attachment.path.unlink(missing_ok=True)

    def _call(self, route: Route, call: Call) -> Reply | Response:
        # Delayed changes of `updatedAt` must show once they are due, even if the worker is busy.
        self._services.apply_late_stamps()
        return route.handler(self._services, call)

    def _authenticate(self, request: Request, site: str | None) -> Session:
        token = request.headers.get("X-Tableau-Auth")
        if not token:
            raise refusal("401000", "No authentication credentials were provided.")
        now = self._services.now_seconds()
        session = accounts.session(self._services.database, token, now=now)
        if session is None:
            raise refusal("401002", "Invalid authentication credentials were provided.")
        if site is not None and site != session.site.luid:
            if self._services.database.find(Site, luid=site):
                raise refusal("403004", "The session belongs to another site.")
            raise refusal("404000", f"Site '{site}' could not be found.")
        return session

    async def _read_body(
        self, request: Request, stream: AsyncIterator[bytes], route: Route
    ) -> tuple[bytes, Attachment | None]:
        if route.attachment:
            return await read_multipart(
                stream,
                request.headers.get("Content-Type", ""),
                file_part=route.attachment,
                path=self._services.files.new_incoming(),
            )
        body = bytearray()
        async for chunk in stream:
            body += chunk
            if len(body) > route.body_bytes:
                raise malformed(f"The body of the request is larger than {route.body_bytes} bytes.")
        return bytes(body), None


def _check_scopes(session: Session, route: Route) -> None:
    if not session.scopes or not route.scopes or scopes_allow(session.scopes, route.scopes):
        return
    # Servers do not reveal the missing scope, but users of a sandbox need to know it.
    needed = " or ".join(route.scopes)
    _logger.warning("%s %s: the connected app needs %s", route.method, route.pattern, needed)
    raise refusal("401002", "Invalid authentication credentials were provided.")
