"""The faults of calls, each as a layer around the application."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tableau_sandbox.errors import refusal
from tableau_sandbox.faults import (
    BreakRows,
    Cut,
    Delay,
    Drop,
    ExpireSessions,
    Fault,
    HideRows,
    QueryFault,
    Refuse,
    StaleRows,
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
# On servers, a gateway in front of the REST API answers with these.
_GATEWAY = (503, 504)
_QUERY_FAULTS = "tableau_pipeline.query_faults"


WriteRefusal = Callable[[Services, Request, int], Response]


def write_rest_refusal(services: Services, request: Request, status: int) -> Response:
    """Write a refusal with a status as the REST API does."""
    return write_error(request, _REFUSALS[status], rest_version=services.options.rest_version)


def query_faults(scope: Scope) -> tuple[QueryFault, ...]:
    """Return the faults that hit a query, in their order."""
    return scope.get(_QUERY_FAULTS, ())


class FaultyApi:
    """The REST API, or another one beside it, with the faults that are armed.

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
        """Answer one request, unless a fault prevents it."""
        control = self.services.control
        app = self._api
        # Each layer wraps the ones before it, and the fault that was armed first has to act first.
        for fault in reversed(control.hits_on_call(scope["method"], scope["raw_path"])):
            app = _LAYERS[type(fault)](self, fault, app)
        await app(scope, receive, send)


def _refusing(api: FaultyApi, fault: Refuse, _: ASGIApp) -> ASGIApp:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        # A client that is still sending would see an early answer as a broken connection.
        if await _is_read(receive):
            answer = _refused(api, Request(scope), fault.status)
            if fault.retry_after is not None:
                answer.headers["Retry-After"] = str(fault.retry_after)
            await answer(scope, receive, send)

    return refuse


def _refused(api: FaultyApi, request: Request, status: int) -> Response:
    if api.services.options.gateway_pages and status in _GATEWAY:
        title = f"{status} {_REFUSALS[status].summary}"
        page = f"<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>"
        return HTMLResponse(page, status)
    return api.write_refusal(api.services, request, status)


async def _is_read(receive: Receive) -> bool:
    """Read the body to its end; return False if the client disconnects before."""
    while (message := await receive())["type"] == "http.request":
        if not message.get("more_body"):
            return True
    return False


def _dropping(api: FaultyApi, fault: Drop, app: ASGIApp) -> ASGIApp:
    async def drop(scope: Scope, receive: Receive, send: Send) -> None:
        async def swallow(message: Message) -> None:
            pass

        if fault.when == "after":
            await app(scope, receive, swallow)
        api.services.control.hang_up(scope["client"])
        # Wait until the server has seen it too, or the server would report a missing answer.
        while (await receive())["type"] != "http.disconnect":
            pass

    return drop


def _delaying(_: FaultyApi, fault: Delay, app: ASGIApp) -> ASGIApp:
    async def delay(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_late(message: Message) -> None:
            if message["type"] == "http.response.start":
                await asyncio.sleep(fault.seconds)
            await send(message)

        await app(scope, receive, send_late)

    return delay


def _expiring(api: FaultyApi, fault: ExpireSessions, app: ASGIApp) -> ASGIApp:
    async def expire(scope: Scope, receive: Receive, send: Send) -> None:
        await run_in_threadpool(accounts.end_sessions_of_user, api.services.database, fault.user)
        await app(scope, receive, send)

    return expire


def _cutting(_: FaultyApi, fault: Cut, app: ASGIApp) -> ASGIApp:
    async def cut(scope: Scope, receive: Receive, send: Send) -> None:
        left = fault.bytes

        async def send_part(message: Message) -> None:
            nonlocal left
            if message["type"] == "http.response.start":
                # The length of the whole answer would show that a part is missing.
                kept = [each for each in message["headers"] if each[0] != b"content-length"]
                message = {**message, "headers": kept}
            else:
                part = message.get("body", b"")[:left]
                left -= len(part)
                message = {**message, "body": part}
            await send(message)

        await app(scope, receive, send_part)

    return cut


def _handing_on(_: FaultyApi, fault: QueryFault, app: ASGIApp) -> ASGIApp:
    """Leave the fault to the service, which alone knows rows."""

    async def hand_on(scope: Scope, receive: Receive, send: Send) -> None:
        with_fault = {**scope, _QUERY_FAULTS: (*query_faults(scope), fault)}
        await app(with_fault, receive, send)

    return hand_on


_Layer = Callable[[FaultyApi, Any, ASGIApp], ASGIApp]
_LAYERS: Mapping[type[Fault], _Layer] = {
    Refuse: _refusing,
    Drop: _dropping,
    Delay: _delaying,
    ExpireSessions: _expiring,
    Cut: _cutting,
    BreakRows: _handing_on,
    HideRows: _handing_on,
    StaleRows: _handing_on,
}
