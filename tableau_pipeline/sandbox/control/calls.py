"""The faults of calls, each as a layer around the application."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tableau_pipeline.sandbox.control.faults import (
    Delay,
    Drop,
    ExpireSessions,
    Fault,
    Refuse,
    Throttle,
)
from tableau_pipeline.sandbox.errors import RestError, refusal
from tableau_pipeline.sandbox.rest.wire.answers import write_error
from tableau_pipeline.sandbox.services import Services
from tableau_pipeline.sandbox.store import accounts

_REFUSALS = {
    401: refusal("401002", "Invalid authentication credentials were provided."),
    429: refusal("429000", "Too many requests. Please retry later."),
    500: refusal("500000", "The sandbox was configured to fail here."),
    503: refusal("503000", "The sandbox was configured to be unavailable."),
    504: refusal("504000", "The sandbox was configured to answer like a gateway that timed out."),
}
# On servers, a gateway in front of the REST API answers with these.
_GATEWAY = (503, 504)


class FaultyApi:
    """The REST API with the faults that are armed."""

    def __init__(self, services: Services, api: ASGIApp):
        self._services = services
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, unless a fault prevents it."""
        control = self._services.control
        app = self._api
        # Each layer wraps the ones before it, and the fault that was armed first has to act first.
        for fault in reversed(control.hits_on_call(scope["method"], scope["raw_path"])):
            app = _LAYERS[type(fault)](self._services, fault, app)
        await app(scope, receive, send)


def _refusing(services: Services, fault: Refuse, _: ASGIApp) -> ASGIApp:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        # A client that is still sending would see an early answer as a broken connection.
        if await _is_read(receive):
            answer = _refused(services, Request(scope), _REFUSALS[fault.status])
            if fault.retry_after is not None:
                answer.headers["Retry-After"] = str(fault.retry_after)
            await answer(scope, receive, send)

    return refuse


def _refused(services: Services, request: Request, error: RestError) -> Response:
    if services.options.gateway_pages and error.status in _GATEWAY:
        title = f"{error.status} {error.summary}"
        page = f"<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>"
        return HTMLResponse(page, error.status)
    return write_error(request, error, rest_version=services.options.rest_version)


async def _is_read(receive: Receive) -> bool:
    """Read the body to its end; return False if the client disconnects before."""
    while (message := await receive())["type"] == "http.request":
        if not message.get("more_body"):
            return True
    return False


def _dropping(services: Services, fault: Drop, app: ASGIApp) -> ASGIApp:
    async def drop(scope: Scope, receive: Receive, send: Send) -> None:
        async def swallow(message: Message) -> None:
            pass

        if fault.when == "after":
            await app(scope, receive, swallow)
        services.control.hang_up(scope["client"])
        # Wait until the server has seen it too, or the server would report a missing answer.
        while (await receive())["type"] != "http.disconnect":
            pass

    return drop


def _delaying(services: Services, fault: Delay, app: ASGIApp) -> ASGIApp:
    async def delay(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_late(message: Message) -> None:
            if message["type"] == "http.response.start":
                await asyncio.sleep(fault.seconds)
            await send(message)

        await app(scope, receive, send_late)

    return delay


def _throttling(services: Services, fault: Throttle, app: ASGIApp) -> ASGIApp:
    async def throttle(scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_slowly() -> Message:
            message = await receive()
            await asyncio.sleep(len(message.get("body", b"")) / fault.bytes_per_second)
            return message

        await app(scope, receive_slowly, send)

    return throttle


def _expiring(services: Services, fault: ExpireSessions, app: ASGIApp) -> ASGIApp:
    async def expire(scope: Scope, receive: Receive, send: Send) -> None:
        await run_in_threadpool(accounts.end_sessions_of_user, services.database, fault.user)
        await app(scope, receive, send)

    return expire


_Layer = Callable[[Services, Any, ASGIApp], ASGIApp]
_LAYERS: Mapping[type[Fault], _Layer] = {
    Refuse: _refusing,
    Drop: _dropping,
    Delay: _delaying,
    Throttle: _throttling,
    ExpireSessions: _expiring,
}
