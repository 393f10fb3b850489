"""Apply the armed faults to the calls of an API."""

import asyncio
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tableau_sandbox.errors import refusal
from tableau_sandbox.faults import (
    Cut,
    Delay,
    Drop,
    ExpireSessions,
    Fault,
    QueryFault,
    Refuse,
)
from tableau_sandbox.rest.answers import write_error
from tableau_sandbox.services import Services
from tableau_sandbox.store import accounts

_REFUSALS = {
    401: refusal("401002", "Invalid authentication credentials were provided."),
    429: refusal("429000", "Too many requests. Please retry later."),
    500: refusal("500000", "The sandbox was configured to fail here."),
    503: refusal("503000", "The sandbox was configured to be unavailable."),
    504: refusal("504000", "The sandbox was configured to answer like a gateway that timed out."),
}
# On real servers, a gateway in front of the REST API sends answers with these statuses.
_GATEWAY = (503, 504)
_QUERY_FAULTS = "tableau_sandbox.query_faults"


WriteRefusal = Callable[[Services, Request, int], Response]


def write_rest_refusal(services: Services, request: Request, status: int) -> Response:
    """Write a refusal with this status in the form of the REST API."""
    return write_error(_REFUSALS[status], rest_version=services.options.rest_version)


def query_faults(scope: Scope) -> tuple[QueryFault, ...]:
    """Return the faults that hit a query, in the order in which they were armed."""
    return scope.get(_QUERY_FAULTS, ())


class FaultyApi:
    """An API of the sandbox, with the armed faults applied to its calls.

    Attributes:
        services: the services of the sandbox.
        write_refusal: writes a refusal with a status in the form of the API.
    """

    def __init__(
        self,
        services: Services,
        api: ASGIApp,
        write_refusal: WriteRefusal = write_rest_refusal,
    ):
        self.services = services
        self.write_refusal = write_refusal
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or misbehave as the armed faults demand."""
        hits = self.services.control.hits_on_call(scope["method"], scope["raw_path"])
        await self._answer(hits, scope, receive=receive, send=send)

    async def _answer(
        self, hits: Sequence[Fault], scope: Scope, *, receive: Receive, send: Send
    ) -> None:
        """Answer with the faults that hit the call; the fault that was armed first acts first."""
        if not hits:
            await self._api(scope, receive, send)
            return
        fault, *others = hits
        match fault:
            case Refuse():
                await self._refuse(fault, scope, receive=receive, send=send)
                return
            case Drop():
                await self._drop(fault, others, scope, receive=receive)
                return
            case Delay():
                send = _late(send, fault.seconds)
            case Cut():
                send = _cut(send, fault.bytes)
            case ExpireSessions():
                database = self.services.database
                await self.services.in_thread(accounts.end_sessions_of_user, database, fault.user)
            case QueryFault():
                # Pass the fault on: only the service itself can change rows.
                scope = {**scope, _QUERY_FAULTS: (*query_faults(scope), fault)}
        await self._answer(others, scope, receive=receive, send=send)

    async def _refuse(self, fault: Refuse, scope: Scope, *, receive: Receive, send: Send) -> None:
        # Read the body first: if the client is still sending, an early answer looks like a broken
        # connection.
        if await _is_read(receive):
            answer = self._refusal(Request(scope), fault.status)
            if fault.retry_after is not None:
                answer.headers["Retry-After"] = str(fault.retry_after)
            await answer(scope, receive, send)

    def _refusal(self, request: Request, status: int) -> Response:
        if self.services.options.gateway_pages and status in _GATEWAY:
            title = f"{status} {_REFUSALS[status].summary}"
            page = f"<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>"
            return HTMLResponse(page, status)
        return self.write_refusal(self.services, request, status)

    async def _drop(
        self, fault: Drop, others: Sequence[Fault], scope: Scope, *, receive: Receive
    ) -> None:
        async def swallow(message: Message) -> None:
            pass

        if fault.when == "after":
            await self._answer(others, scope, receive=receive, send=swallow)
        self.services.control.hang_up(scope["client"])
        # Wait until the server has noticed the break, or the server would report a missing answer.
        while (await receive())["type"] != "http.disconnect":
            pass


def _late(send: Send, seconds: float) -> Send:
    async def send_late(message: Message) -> None:
        if message["type"] == "http.response.start":
            await asyncio.sleep(seconds)
        await send(message)

    return send_late


def _cut(send: Send, left: int) -> Send:
    async def send_part(message: Message) -> None:
        nonlocal left
        if message["type"] == "http.response.start":
            # The length of the whole answer would reveal that a part is missing.
            kept = [each for each in message["headers"] if each[0] != b"content-length"]
            message = {**message, "headers": kept}
        else:
            part = message.get("body", b"")[:left]
            left -= len(part)
            message = {**message, "body": part}
        await send(message)

    return send_part


async def _is_read(receive: Receive) -> bool:
    """Read the body to its end; return False if the client disconnects earlier."""
    while (message := await receive())["type"] == "http.request":
        if not message.get("more_body"):
            return True
    return False
